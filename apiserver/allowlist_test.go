package apiserver_test

import (
	"bytes"
	"maps"
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/storetest"
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

// Replicas add up what they count. A bad key is not counted, and nobody who is refused sees a difference.
func TestBlockedAddresses_ReplicasAdd(t *testing.T) {
	f := newFixture(t)
	enforced := f.merchant("enforced", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	reporting := f.merchant("reporting", func(r *published.MerchantRecord) {
		r.IPAllowlist, r.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	})
	keys := map[string]int{f.key("enforced", enforced): http.StatusUnauthorized, f.key("reporting", reporting): http.StatusOK}
	disabled := f.key("disabled", reporting, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	for range 2 {
		r := f.start(trustLoopback)
		for key, want := range keys {
			r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "198.51.100.7").want(t, want)
			r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "2001:db8:1::7").want(t, want)
			r.call(http.MethodGet, me, key, "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusOK)
		}
		unknown := r.call(http.MethodGet, me, disabled, "", "X-Forwarded-For", "192.0.2.7").want(t, http.StatusUnauthorized)
		if refused := r.call(http.MethodGet, me, f.newKey(published.ID("unknown")).Reveal(), "").want(t, http.StatusUnauthorized); !bytes.Equal(unknown.raw, refused.raw) {
			t.Errorf("%s and %s", unknown.raw, refused.raw)
		}
	}
	kept := storetest.Open(t, sharedRedis.URL())
	for _, merchant := range []published.MerchantRecord{enforced, reporting} {
		await.Until(t, patience, "both replicas have written what they counted for "+merchant.Name, func() bool {
			all, _, err := kept.Blocked(t.Context(), session.BucketOf(merchant.MerchantID))
			if err != nil {
				t.Fatal(err)
			}
			counts := map[string]int64{}
			for _, blocked := range all {
				for _, block := range blocked.Blocks {
					if blocked.MerchantID == merchant.MerchantID {
						counts[block.Block] = block.Requests
					}
				}
			}
			return maps.Equal(counts, map[string]int64{"198.51.100.0/24": 2, "2001:db8:1::/48": 2})
		})
	}
}
