package apiserver_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// roundTrip is a RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// onUpdate puts something around each update that a replica sends to the Kubernetes API.
func (f *fixture) onUpdate(around func(r *http.Request, next http.RoundTripper) (*http.Response, error)) {
	f.kubeConfig = rest.CopyConfig(f.kubeConfig)
	f.kubeConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut {
				return around(r, next)
			}
			return next.RoundTrip(r)
		})
	})
}

const unavailable = "temporarily unavailable; retry"

func TestRotateWithoutTheKubernetesAPI(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	r.proxy.Cut()
	got := r.call(http.MethodPost, rotate, key, "")
	got.wantError(t, http.StatusServiceUnavailable, unavailable)
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated) // all else goes on
	r.proxy.Mend()
	r.call(http.MethodGet, me, f.rotated(r, key), "").want(t, http.StatusOK)
}

func TestRotateWithAKubernetesAPIThatHangs(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	f.onUpdate(func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body) // a server notices that its client is gone once it has read the body
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	r := f.start()
	r.call(http.MethodPost, rotate, key, "").wantError(t, http.StatusServiceUnavailable, unavailable)
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}

func TestRotateAgainstOtherWritesOfTheSecret(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	conflicts := 2
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if conflicts > 0 {
			conflicts--
			secret := f.secretOf(key)
			secret.Annotations = map[string]string{"touched": string(rune('0' + conflicts))}
			f.updateSecret(secret)
		}
		return next.RoundTrip(r)
	})
	r := f.start()
	fresh := f.rotated(r, key)
	r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
	if conflicts != 0 || f.secretOf(key).Annotations["touched"] != "0" {
		t.Error("the others' writes were lost")
	}
}

// The swap went through, and only its answer was lost.
func TestRotateWithAnAnswerThatIsLost(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	updates := 0
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		updates++
		response, err := next.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errors.New("connection reset by peer")
	})
	r := f.start()
	fresh := f.rotated(r, key)
	r.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
	if updates != 1 {
		t.Errorf("%d updates, want 1", updates)
	}
}

func TestRotateShowsNoKeyThatIsNotInForce(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	own := redistest.Start(t)
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		own.Stop()
		return next.RoundTrip(r)
	})
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	got := r.call(http.MethodPost, rotate, key, "")
	got.wantError(t, http.StatusServiceUnavailable,
		"key rotation did not complete; if the key no longer works, rotate it through its ApiKey")
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	own.Start()
	eventually(t, "the old key is dead", func() bool {
		return r.call(http.MethodGet, me, key, "").status == http.StatusUnauthorized
	})
}

// A client that hangs up in the middle must not leave a swap without its override.
func TestRotateOutlivesItsClient(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	swapping, gone := make(chan struct{}), make(chan struct{})
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		close(swapping)
		<-gone
		return next.RoundTrip(r)
	})
	r, other := f.start(), f.start()
	for _, each := range []*replica{r, other} {
		each.proxy.FreezeWatches() // so that only the rotation itself can reach the others
	}

	ctx, hangUp := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+rotate, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	go func() {
		<-swapping
		hangUp()
	}()
	if response, err := client.Do(request); err == nil {
		_ = response.Body.Close()
		t.Fatal("a response, although the client disconnected")
	}
	close(gone)
	eventually(t, "the override is in force", func() bool {
		return other.call(http.MethodGet, me, key, "").status == http.StatusUnauthorized
	})
	record, err := published.DecodeKey(f.secretOf(key))
	if err != nil || record.Generation != 2 {
		t.Errorf("generation %d, %v, want 2", record.Generation, err)
	}
}

// Whoever has been told 401 must not find a replica that still takes the key, though the rotation that
// won has not been answered yet.
func TestTheLoserOfARaceGets401WhenTheKeyIsDeadEverywhere(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	loser, bystander := f.start(), f.start()
	swapped, goOn := make(chan struct{}), make(chan struct{})
	f.onUpdate(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		close(swapped)
		<-goOn
		return response, err
	})
	winner := f.start()
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	for _, each := range []*replica{winner, loser, bystander} {
		each.proxy.FreezeWatches()
	}

	won := make(chan result, 1)
	go func() { won <- winner.call(http.MethodPost, rotate, key, "") }()
	<-swapped
	bystander.call(http.MethodGet, me, key, "").want(t, http.StatusOK) // no response has been sent yet
	loser.call(http.MethodPost, rotate, key, "").want(t, http.StatusUnauthorized)
	bystander.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	release()
	fresh := (<-won).want(t, http.StatusOK).text("fullKey")
	f.issued = append(f.issued, fresh)
	bystander.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
}
