package system

import (
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// The rollout of an allowlist: it reports whom it would refuse, then refuses them, and says no more of those that it is changed for.
func TestAnAllowlistReportsBeforeItIsEnforced(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	merchant := s.Merchant("coffee", func(m *v1alpha1.Merchant) {
		m.Spec.IPAllowlist, m.Spec.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	})
	_, key := s.ApiKey("till", "coffee")
	s.eventuallyEverywhere(key, http.StatusOK)
	const here = "127.0.0.0/24"
	eventuallyReported := func(desc string, want bool) {
		t.Helper()
		var found v1alpha1.Merchant
		s.Eventually(desc, func() bool {
			if err := s.Kube.Get(t.Context(), client.ObjectKeyFromObject(merchant), &found); err != nil {
				t.Fatal(err)
			}
			return (found.Status.Allowlist != nil) == want
		})
		if want {
			if all := found.Status.Allowlist.Refused; len(all) != 1 || all[0].Block != here || all[0].Requests < 1 || time.Since(all[0].LastSeen.Time) > time.Hour {
				t.Errorf("%s: %+v", desc, all)
			}
		}
	}
	eventuallyReported("the address of this test is reported", true)
	for replica := range shared.replicas {
		s.charge(replica, key) // and not refused
	}

	s.Change(merchant, func() { merchant.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "127.0.0.1"} })
	eventuallyReported("it is on the list", false)
	s.Change(merchant, func() {
		merchant.Spec.IPAllowlist, merchant.Spec.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistEnforce
	})
	s.eventuallyEverywhere(key, http.StatusUnauthorized)
	eventuallyReported("it is refused, and reported", true)
}
