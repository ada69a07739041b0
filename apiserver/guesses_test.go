package apiserver_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
)

// guessing starts a replica that lets an address present 5 wrong keys at once, and believes the test about addresses.
func guessing(o *apiserver.Options) {
	o.WrongKeyLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 5}
	o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

func TestAnAddressThatGuessesIsAnsweredTheSameForEveryKey(t *testing.T) {
	s := newScene(t)
	key := s.key("till", s.merchant("coffee"))
	r := s.start(guessing)
	wrong := s.newKey(key[8:20]).Reveal() // another secret of the same key id, so that Redis would have to be asked
	from := []string{"X-Forwarded-For", "192.0.2.1"}
	var refused answer
	eventually(t, "the address is refused", func() bool {
		refused = r.call(http.MethodGet, me, wrong, "", from...)
		if refused.status != http.StatusUnauthorized && refused.status != http.StatusTooManyRequests {
			t.Fatalf("a wrong key got %d", refused.status)
		}
		return refused.status == http.StatusTooManyRequests
	})
	if refused.header.Get("Retry-After") == "" || refused.header.Get("RateLimit") != "" {
		t.Errorf("the refusal has %v", refused.header)
	}
	good := r.call(http.MethodGet, me, key, "", from...)
	if good.status == http.StatusOK { // a guess was paid for in between
		r.call(http.MethodGet, me, wrong, "", from...)
		good = r.call(http.MethodGet, me, key, "", from...)
	}
	if good.status != refused.status || string(good.raw) != string(refused.raw) {
		t.Errorf("a good key got %d %s, a wrong one %d %s", good.status, good.raw, refused.status, refused.raw)
	}
	r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "192.0.2.2").want(t, http.StatusOK)
	eventually(t, "the address is looked at again", func() bool {
		return r.call(http.MethodGet, me, key, "", from...).status == http.StatusOK
	})
}

// Good keys and requests without any are not counted, however many there are.
func TestWhoGuessesNothingIsNotLimited(t *testing.T) {
	s := newScene(t)
	key := s.key("till", s.merchant("coffee"))
	r := s.start(guessing)
	for range 20 {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
		r.call(http.MethodGet, me, "", "").want(t, http.StatusUnauthorized)
	}
	if limited := r.metric(`merchant_operator_http_rate_limited_total{limit="wrong_keys"}`); limited != "0" {
		t.Errorf("%s were limited", limited)
	}
}
