package system

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// observable returns what a caller could tell two refusals apart by.
func observable(a fixture.Answer) map[string]any {
	header := a.Header.Clone()
	header.Del("Date")
	header.Del("X-Request-Id") // of this request alone
	return map[string]any{"status": a.Status, "header": header, "body": string(a.Raw)}
}

func TestEveryRefusedKeyGetsTheSame401(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	wrong := s.want(s.call(0, http.MethodGet, me, "mk_live_nobody", ""), http.StatusUnauthorized)
	same := func(cause string, got fixture.Answer) {
		t.Helper()
		if diff := cmp.Diff(observable(wrong), observable(got)); diff != "" {
			t.Errorf("%s is told apart from a wrong key (-wrong +got):\n%s", cause, diff)
		}
	}
	same("no key", s.call(0, http.MethodGet, me, "", ""))

	elsewhere := s.Merchant("elsewhere", func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	_, foreign := s.ApiKey("foreign", elsewhere.Name)
	s.Change(elsewhere, func() { elsewhere.Spec.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.0/8"} })
	s.eventuallyStatus(0, foreign, http.StatusOK)
	s.Change(elsewhere, func() { elsewhere.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	s.eventuallyStatus(0, foreign, http.StatusUnauthorized)
	same("a foreign address", s.call(0, http.MethodGet, me, foreign, ""))

	s.Merchant("coffee")
	disabled, disabledKey := s.ApiKey("disabled", "coffee")
	deleted, deletedKey := s.ApiKey("deleted", "coffee")
	s.eventuallyStatus(0, disabledKey, http.StatusOK)
	s.eventuallyStatus(0, deletedKey, http.StatusOK)
	s.Change(disabled, func() { disabled.Spec.State = v1alpha1.ApiKeyDisabled })
	s.eventuallyStatus(0, disabledKey, http.StatusUnauthorized)
	same("a disabled key", s.call(0, http.MethodGet, me, disabledKey, ""))
	s.Delete(deleted)
	s.eventuallyStatus(0, deletedKey, http.StatusUnauthorized)
	same("a deleted key", s.call(0, http.MethodGet, me, deletedKey, ""))
}

func TestASuspendedMerchantIsForbiddenAndComesBack(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	merchant := s.Merchant("coffee")
	_, key := s.ApiKey("till", "coffee")
	s.eventuallyEverywhere(key, http.StatusOK)
	s.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantSuspended })
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusForbidden)
		s.want(s.call(replica, http.MethodPost, sessions, key, `{"amountCents":100}`), http.StatusForbidden)
	}
	s.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantActive })
	s.eventuallyEverywhere(key, http.StatusOK)
}

func TestDeletingAMerchantMakesItsKeysUseless(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	merchant := s.Merchant("coffee")
	_, key := s.ApiKey("till", "coffee")
	s.eventuallyEverywhere(key, http.StatusOK)
	s.Delete(merchant)
	s.eventuallyEverywhere(key, http.StatusUnauthorized)
}

func TestTheRateLimitIsSharedByReplicas(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	s.Merchant("coffee", func(m *v1alpha1.Merchant) { m.Spec.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 200} })
	_, key := s.ApiKey("till", "coffee")
	s.Eventually("a replica refuses", func() bool { return s.call(0, http.MethodGet, me, key, "").Status == http.StatusTooManyRequests })
	refused := s.call(1, http.MethodGet, me, key, "")
	if refused.Status == http.StatusOK { // one request was earned in between
		refused = s.call(1, http.MethodGet, me, key, "")
	}
	s.want(refused, http.StatusTooManyRequests)
	if refused.Header.Get("Retry-After") == "" || refused.Header.Get("RateLimit-Policy") == "" {
		t.Errorf("a 429 without Retry-After or RateLimit-Policy: %v", refused.Header)
	}
}
