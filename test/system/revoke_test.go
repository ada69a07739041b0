package system

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// TestARevocationReachesAReplicaWhoseWatchIsFrozen ends access in each way there is, while one
// replica hears nothing from the Kubernetes API: the others tell it through Redis.
func TestARevocationReachesAReplicaWhoseWatchIsFrozen(t *testing.T) {
	revocations := map[string]func(tenant, *v1alpha1.Merchant, *v1alpha1.ApiKey){
		"disabled": func(s tenant, _ *v1alpha1.Merchant, k *v1alpha1.ApiKey) {
			s.Change(k, func() { k.Spec.State = v1alpha1.ApiKeyDisabled })
		},
		"deleted":          func(s tenant, _ *v1alpha1.Merchant, k *v1alpha1.ApiKey) { s.Delete(k) },
		"merchant deleted": func(s tenant, m *v1alpha1.Merchant, _ *v1alpha1.ApiKey) { s.Delete(m) },
		"rotated by trigger, no overlap": func(s tenant, _ *v1alpha1.Merchant, k *v1alpha1.ApiKey) {
			s.Change(k, func() { k.Spec.Rotation.Trigger, k.Spec.Rotation.OverlapSeconds = "now", new(int32) })
		},
		"expired": func(s tenant, _ *v1alpha1.Merchant, k *v1alpha1.ApiKey) {
			s.Change(k, func() { k.Spec.ExpiresAt = new(metav1.NewTime(time.Now().Add(2 * time.Second))) })
		},
		"merchant re-created": func(s tenant, m *v1alpha1.Merchant, _ *v1alpha1.ApiKey) {
			s.Delete(m)
			s.Eventually("the merchant is gone", func() bool { return s.Gone(m) })
			s.Merchant(m.Name)
		},
	}
	for name, revoke := range revocations {
		t.Run(name, func(t *testing.T) {
			s := newTenant(t)
			merchant := s.Merchant("coffee")
			apiKey, key := s.ApiKey("till", "coffee")
			s.eventuallyEverywhere(key, http.StatusOK)
			frozen := len(shared.replicas) - 1
			shared.proxies[frozen].FreezeWatches()
			t.Cleanup(shared.proxies[frozen].ThawWatches)
			revoke(s, merchant, apiKey)
			for replica := range shared.replicas {
				s.Eventually(fmt.Sprintf("replica %d refuses the key", replica), func() bool {
					return s.try(replica, key) == http.StatusUnauthorized
				})
			}
		})
	}
}

func TestAReenabledKeyWorksAgain(t *testing.T) {
	s := newTenant(t)
	s.Merchant("coffee")
	apiKey, key := s.ApiKey("till", "coffee")
	for range 3 {
		s.Change(apiKey, func() { apiKey.Spec.State = v1alpha1.ApiKeyDisabled })
		s.eventuallyEverywhere(key, http.StatusUnauthorized)
		s.Change(apiKey, func() { apiKey.Spec.State = v1alpha1.ApiKeyActive })
		s.eventuallyEverywhere(key, http.StatusOK)
	}
}
