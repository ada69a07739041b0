package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/await"
)

// An allowlist that reports only changes no answer: not that of a bad key either.
func TestAnAllowlistThatReportsRefusesNobody(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) {
		r.IPAllowlist, r.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	})
	good := f.key("good", acme)
	disabled := f.key("disabled", acme, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	r := f.start(trustLoopback)
	for _, address := range []string{"203.0.113.7", "198.51.100.7", "2001:db8::7"} {
		r.call(http.MethodGet, me, good, "", "X-Forwarded-For", address).want(t, http.StatusOK)
		r.call(http.MethodPost, sessions, good, `{"amountCents": 1}`, "X-Forwarded-For", address).want(t, http.StatusCreated)
		r.call(http.MethodGet, me, disabled, "", "X-Forwarded-For", address).want(t, http.StatusUnauthorized)
	}
	acme.IPAllowlistMode = v1alpha1.IPAllowlistEnforce
	f.changeMerchant(acme)
	await.Until(t, patience, "the list is enforced", func() bool {
		return r.call(http.MethodGet, me, good, "", "X-Forwarded-For", "198.51.100.7").status == http.StatusUnauthorized
	})
	r.call(http.MethodGet, me, good, "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusOK)
}
