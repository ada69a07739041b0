package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// A request that is wrong in several ways is refused for the first of: key, merchant, limit, request.
func TestOrderOfRefusals(t *testing.T) {
	f := newFixture(t)
	limited := func(r *published.MerchantRecord) { r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 1} }
	acme := f.merchant("acme")
	key := f.key("till", acme)
	suspended := f.key("of-suspended", f.merchant("suspended", limited, func(r *published.MerchantRecord) {
		r.State = v1alpha1.MerchantSuspended
	}))
	closed := f.key("of-closed", f.merchant("closed", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantClosed }))
	slow := f.key("slow", f.merchant("slow", limited))
	dead := f.newKey(published.ID("nobody")).Reveal()
	r := f.start()
	failed := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.report(failed, f.rail("bank"), failure(1)).want(t, http.StatusOK)
	// The burst of one comes back within a second, so each request over the limit follows one that spends it.
	spend := func() { r.call(http.MethodGet, me, slow, "") }

	for _, request := range []struct {
		name, method, path, body string
		wrong                    int // what is wrong with the request itself
	}{
		{"a bad body", http.MethodPost, sessions, `{"amountCents": 0}`, http.StatusBadRequest},
		{"too large a body", http.MethodPost, sessions, badBodies["200 KB"].body, http.StatusBadRequest},
		{"a malformed id", http.MethodGet, sessions + "/x", "", http.StatusNotFound},
		{"an id with a slash and NUL", http.MethodGet, sessions + "/a%2Fb%00", "", http.StatusNotFound},
		{"cancel of a malformed id", http.MethodPost, sessions + "/x/cancel", "", http.StatusNotFound},
		{"cancel of an unknown id", http.MethodPost, sessions + "/ps_00000000000000000000000000/cancel", "", http.StatusNotFound},
		{"cancel of a failed session", http.MethodPost, sessions + "/" + failed + "/cancel", "", http.StatusConflict},
		{"an unknown id", http.MethodGet, sessions + "/ps_00000000000000000000000000", "", http.StatusNotFound},
	} {
		t.Run(request.name, func(t *testing.T) {
			call := func(key string) result { return r.call(request.method, request.path, key, request.body) }
			call(dead).want(t, http.StatusUnauthorized)
			for range 3 { // a blocked merchant's limiter is not charged
				call(suspended).wantError(t, http.StatusForbidden, "merchant is not active")
			}
			call(closed).want(t, http.StatusForbidden)
			eventually(t, "the limit is exceeded", func() bool {
				spend()
				return call(slow).status == http.StatusTooManyRequests
			})
			call(key).want(t, request.wrong)
		})
	}
}

func TestBlockedAnswersTellNoQuota(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantSuspended }))
	r := f.start()
	for _, route := range []struct{ method, path string }{{"GET", me}, {"POST", sessions}, {"POST", rotate}, {"GET", sessions + "/x"}, {"POST", sessions + "/x/cancel"}} {
		got := r.call(route.method, route.path, key, `{"amountCents":1}`).want(t, http.StatusForbidden)
		if got.header.Get("RateLimit") != "" || got.header.Get("RateLimit-Policy") != "" {
			t.Errorf("%s %s: headers %v", route.method, route.path, got.header)
		}
	}
}
