package apiserver_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// slowly is a limit whose burst does not come back while a test runs.
var slowly = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: burst}

const burst = 100

// spend uses a limit up and returns how many requests passed.
func spend(t *testing.T, call func() result) (passed int, refused result) {
	t.Helper()
	for {
		got := call()
		if got.status == http.StatusTooManyRequests {
			return passed, got
		}
		if passed++; passed > 1000 {
			t.Fatal("there is no limit")
		}
	}
}

func wantTooMany(t *testing.T, got result, policy string) {
	t.Helper()
	got.wantError(t, http.StatusTooManyRequests, "rate limit exceeded; retry after the time in Retry-After")
	if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || seconds != 1 {
		t.Errorf("Retry-After %q, want 1", got.header.Get("Retry-After"))
	}
	if got.header.Get("RateLimit-Policy") != policy {
		t.Errorf("RateLimit-Policy %s, want %s", got.header.Get("RateLimit-Policy"), policy)
	}
	if !regexp.MustCompile(`^"[a-z]+";r=0;t=(99|100)$`).MatchString(got.header.Get("RateLimit")) {
		t.Errorf("RateLimit %s", got.header.Get("RateLimit"))
	}
}

// All keys of a merchant share its limit, on all replicas.
func TestMerchantLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) { r.RateLimit = slowly })
	one, two := f.key("one", acme), f.key("two", acme)
	stranger := f.key("stranger", f.merchant("books", func(r *published.MerchantRecord) { r.RateLimit = slowly }))
	first, second := f.start(), f.start()

	calls := 0
	passed, refused := spend(t, func() result {
		calls++
		if calls%2 == 0 {
			return first.call(http.MethodGet, me, one, "")
		}
		return second.call(http.MethodGet, me, two, "")
	})
	if passed < burst {
		t.Errorf("%d requests passed, want the burst of %d", passed, burst)
	}
	wantTooMany(t, refused, `"merchant";q=100;w=100`)
	got := first.call(http.MethodGet, me, stranger, "").want(t, http.StatusOK)
	if got.header.Get("RateLimit") != `"merchant";r=99;t=1` || got.header.Get("RateLimit-Policy") != `"merchant";q=100;w=100` {
		t.Errorf("another merchant's first answer says %v", got.header)
	}
}

func TestPublicLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(trustLoopback, func(o *apiserver.Options) { o.PublicRateLimit = slowly })
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	from := func(address string) result {
		return r.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", address)
	}

	// The addresses are of this test alone: the limit is of all merchants of a bucket.
	_, refused := spend(t, func() result { return from("203.0.113.1") })
	wantTooMany(t, refused, `"address";q=100;w=100`)
	from("203.0.113.2").want(t, http.StatusOK)
	_, refused = spend(t, func() result { return from("2001:db8:1:2::1") })
	wantTooMany(t, refused, `"address";q=100;w=100`)
	if more, _ := spend(t, func() result { return from("2001:db8:1:2:ffff::") }); more > burst/2 { // more than came back meanwhile
		t.Errorf("another address of the same subscriber got %d requests more", more)
	}
	from("2001:db8:1:3::1").want(t, http.StatusOK)
	r.call(http.MethodGet, sessions+"/"+id, key, "", "X-Forwarded-For", "203.0.113.1").want(t, http.StatusOK)
}

// The limit of an address is of all sessions that a replica serves it. Through two replicas it has at most twice that, and never more than once
// for the sessions of one bucket. Test sessions are counted apart.
func TestPublicLimit_WorstCase(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme")
	other := acme
	for i := 0; session.MerchantBucket(other.MerchantID) == session.MerchantBucket(acme.MerchantID); i++ {
		other = f.merchant(fmt.Sprint("other-", i))
	}
	keys := []string{f.key("till", acme), f.key("other", other)}
	testKey := f.testKey("test", acme)
	slow := func(o *apiserver.Options) { o.PublicRateLimit = slowly }
	replicas := []*replica{f.start(trustLoopback, slow), f.start(trustLoopback, slow)}
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = replicas[0].call(http.MethodPost, sessions, key, charge1250).want(t, http.StatusCreated).text("sessionId")
	}
	ofTest := replicas[0].call(http.MethodPost, sessions, testKey, charge1250).want(t, http.StatusCreated).text("sessionId")
	for i, row := range []struct {
		name     string
		replicas []*replica
		ids      []string
		bursts   int
	}{
		{"all sessions, one replica", replicas[:1], ids, 1},
		{"one session, both replicas", replicas, ids[:1], 1},
		{"all sessions, both replicas", replicas, ids, 2},
		{"live and test, one replica", replicas[:1], []string{ids[0], ofTest}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			address := fmt.Sprint("203.0.113.", 50+i)
			began := time.Now()
			passed := 0
			for refused := 0; refused < len(row.replicas)*len(row.ids); { // each way
				refused = 0
				for _, r := range row.replicas {
					for _, id := range row.ids {
						if r.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", address).status == http.StatusOK {
							passed++
						} else {
							refused++
						}
					}
				}
			}
			elapsed := int(time.Since(began)/time.Second) + 1
			if passed < row.bursts*burst || passed > row.bursts*(burst+elapsed) {
				t.Errorf("%d reads passed in %d s, want %d times %d and one a second", passed, elapsed, row.bursts, burst)
			}
		})
	}
}

// Each rotation is an event for every replica, so one ApiKey has 100 at once and then one per second.
func TestRotationLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme")
	key, other := f.key("till", acme), f.key("other", acme)
	replicas := []*replica{f.start(), f.start()}
	began := time.Now()
	var limited result
	rotations := 0
	for limited.status == 0 && rotations < 500 {
		got := replicas[rotations%2].call(http.MethodPost, rotate, key, "")
		if got.status == http.StatusTooManyRequests {
			limited = got
			continue
		}
		key = got.want(t, http.StatusOK).text("fullKey")
		f.issued = append(f.issued, key)
		rotations++
	}
	if most := 100 + int(time.Since(began)/time.Second) + 1; rotations < 100 || rotations > most {
		t.Errorf("%d rotations, want 100 to %d", rotations, most)
	}
	if limited.header.Get("Retry-After") != "1" || !strings.HasPrefix(limited.header.Get("RateLimit"), `"rotations";r=0;`) {
		t.Errorf("the 429 has %v", limited.header)
	}
	for _, r := range replicas {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	}
	f.rotated(replicas[0], other)
	eventually(t, "the key rotates again", func() bool {
		got := replicas[0].call(http.MethodPost, rotate, key, "")
		if got.status == http.StatusOK {
			f.issued = append(f.issued, got.text("fullKey"))
		}
		return got.status == http.StatusOK
	})
	counted := 0
	for _, r := range replicas {
		n, err := strconv.Atoi(r.metric(`merchant_operator_http_rate_limited_total{limit="rotations"}`))
		if err != nil {
			t.Fatal(err)
		}
		counted += n
	}
	if counted == 0 {
		t.Error("no 429 is counted")
	}
}
