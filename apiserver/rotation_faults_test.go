package apiserver_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const rotationUnknown = "unknown whether the key was rotated; send the same request again"

// The rotation is done, but not every replica knows: nobody gets the key, and the same request says what is in force.
func TestNoKeyIsShownIfRedisIsAwayAfterTheSwap(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	own := redistest.Start(t)
	away := true
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if away {
			own.Stop()
		}
		return next.RoundTrip(r)
	})
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	got := r.issue(id, console, f.of(1, 0))
	got.wantError(t, http.StatusServiceUnavailable, rotationUnknown)
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	away = false
	own.Start()
	eventually(t, "the same request says what is in force", func() bool {
		got := r.issue(id, console, f.of(1, 0))
		return got.status == http.StatusConflict && got.body["generation"] == 2.0
	})
	key := f.issuedKey(r.issue(id, console, f.of(2, 0)))
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

func TestNothingIsRotatedWithoutRedis(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	own := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	own.Stop()
	r.issue(id, console, f.of(1, 0)).wantError(t, http.StatusServiceUnavailable, unavailable)
	if generation := f.recordOf(id).Generation; generation != 1 {
		t.Errorf("generation %d", generation)
	}
}

func TestNothingIsRotatedWithoutTheKubernetesAPI(t *testing.T) {
	f := newFixture(t)
	id := f.unissued("till", f.merchant("acme"))
	console := f.issuer("console")
	r := f.start(func(o *apiserver.Options) { o.InternalCacheTTL = time.Hour })
	r.issue(id, console, f.of(9, 0)).want(t, http.StatusConflict) // the caller is known from now on
	r.proxy.Cut()
	r.issue(id, console, f.of(1, 0)).wantError(t, http.StatusServiceUnavailable, unavailable)
	r.proxy.Mend()
	f.issuedKey(r.issue(id, console, f.of(1, 0)))
}
