package system

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const me = "/api/v1/merchant/me"

// observable returns what a caller could tell two refusals apart by.
func observable(a answer) map[string]any {
	header := a.header.Clone()
	header.Del("Date")
	return map[string]any{"status": a.status, "header": header, "body": string(a.raw)}
}

func TestEveryRefusedKeyGetsTheSame401(t *testing.T) {
	s := newScene(t)
	wrong := s.want(s.call(0, http.MethodGet, me, "mk_live_nobody", ""), http.StatusUnauthorized)
	same := func(cause string, got answer) {
		t.Helper()
		if diff := cmp.Diff(observable(wrong), observable(got)); diff != "" {
			t.Errorf("%s is told apart from a wrong key (-wrong +got):\n%s", cause, diff)
		}
	}
	same("no key", s.call(0, http.MethodGet, me, "", ""))

	elsewhere := s.merchant("elsewhere", func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	_, foreign := s.apiKey("foreign", elsewhere.Name)
	s.change(elsewhere, func() { elsewhere.Spec.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.0/8"} })
	s.eventuallyStatus(0, foreign, http.StatusOK)
	s.change(elsewhere, func() { elsewhere.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	s.eventuallyStatus(0, foreign, http.StatusUnauthorized)
	same("a foreign address", s.call(0, http.MethodGet, me, foreign, ""))

	s.merchant("coffee")
	disabled, disabledKey := s.apiKey("disabled", "coffee")
	deleted, deletedKey := s.apiKey("deleted", "coffee")
	s.eventuallyStatus(0, disabledKey, http.StatusOK)
	s.eventuallyStatus(0, deletedKey, http.StatusOK)
	s.change(disabled, func() { disabled.Spec.State = v1alpha1.ApiKeyDisabled })
	s.eventuallyStatus(0, disabledKey, http.StatusUnauthorized)
	same("a disabled key", s.call(0, http.MethodGet, me, disabledKey, ""))
	s.delete(deleted)
	s.eventuallyStatus(0, deletedKey, http.StatusUnauthorized)
	same("a deleted key", s.call(0, http.MethodGet, me, deletedKey, ""))
}

func TestASuspendedMerchantIsForbiddenAndComesBack(t *testing.T) {
	s := newScene(t)
	merchant := s.merchant("coffee")
	_, key := s.apiKey("till", "coffee")
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusOK)
	}
	s.change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantSuspended })
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusForbidden)
		s.want(s.call(replica, http.MethodPost, sessions, key, `{"amountCents":100}`), http.StatusForbidden)
	}
	s.change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantActive })
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusOK)
	}
}

func TestDeletingAMerchantMakesItsKeysUseless(t *testing.T) {
	s := newScene(t)
	merchant := s.merchant("coffee")
	_, key := s.apiKey("till", "coffee")
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusOK)
	}
	s.delete(merchant)
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusUnauthorized)
	}
}

func TestTheRateLimitIsSharedByReplicas(t *testing.T) {
	s := newScene(t)
	s.merchant("coffee", func(m *v1alpha1.Merchant) { m.Spec.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 200} })
	_, key := s.apiKey("till", "coffee")
	s.eventually("a replica refuses", func() bool { return s.call(0, http.MethodGet, me, key, "").status == http.StatusTooManyRequests })
	refused := s.call(1, http.MethodGet, me, key, "")
	if refused.status == http.StatusOK { // one request was earned in between
		refused = s.call(1, http.MethodGet, me, key, "")
	}
	s.want(refused, http.StatusTooManyRequests)
	if refused.header.Get("Retry-After") == "" || refused.header.Get("RateLimit-Policy") == "" {
		t.Errorf("a 429 without Retry-After or RateLimit-Policy: %v", refused.header)
	}
}
