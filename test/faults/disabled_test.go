//go:build faults

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// disabledWithin is promise P2 for a key that is disabled.
const disabledWithin = 5 * time.Second

// hindrance is what a tenant does so that no key can be issued, before it disables its ApiKey with the trigger of a rotation.
type hindrance struct {
	name string
	do   func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey)
}

func hindrances() []hindrance {
	const last = 1<<53 - 1
	secretOf := func(key *v1alpha1.ApiKey) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-key"}}
	}
	patch := func(s *deployment, tenant client.Client, object client.Object, text string) {
		s.must(tenant.Patch(s.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))))
	}
	status := func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey, text string) {
		s.must(tenant.Status().Patch(s.t.Context(), key, client.RawPatch(types.MergePatchType, []byte(`{"status":`+text+`}`))))
	}
	plant := func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey, name string, kind corev1.SecretType) {
		s.must(tenant.Create(s.t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: name,
				Labels:          map[string]string{"merchant-operator.io/delivered": "key"},
				Annotations:     map[string]string{"merchant-operator.io/generation": fmt.Sprint(last)},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(key, v1alpha1.SchemeGroupVersion.WithKind("ApiKey"))},
			},
			Type: kind,
		}))
	}
	return []hindrance{
		{"immutable", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			patch(s, tenant, secretOf(key), `{"immutable":true}`)
		}},
		{"mistyped", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			s.must(tenant.Delete(s.t.Context(), secretOf(key)))
			plant(s, tenant, key, key.Name+"-key", "example.com/other")
		}},
		{"planted", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			plant(s, tenant, key, "planted", corev1.SecretTypeOpaque)
		}},
		{"generation", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			status(s, tenant, key, fmt.Sprintf(`{"keyGeneration":%d}`, last+1))
		}},
		{"year-9999", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			status(s, tenant, key, `{"keyGeneration":9,"lastRotation":{"time":"9999-12-31T23:59:59Z","cause":"API"}}`)
		}},
		{"held", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			patch(s, tenant, secretOf(key), `{"metadata":{"finalizers":["example.com/hold"]}}`)
			s.must(tenant.Delete(s.t.Context(), secretOf(key)))
			s.t.Cleanup(func() {
				unheld := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				s.must(shared.Client.Patch(context.Background(), secretOf(key), unheld))
			})
		}},
		{"quota", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			s.must(shared.Client.Create(s.t.Context(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "none"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("0")}},
			}))
			s.must(tenant.Delete(s.t.Context(), secretOf(key)))
		}},
	}
}

// tryDisabling disables keys that cannot be rotated, each in another way, with the trigger of a rotation in the same patch.
func tryDisabling(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	tenant, own := s.tenant()
	own.Merchant("bait")
	var slowest time.Duration
	for _, h := range hindrances() {
		plain := own.apiKey(h.name, "bait")
		var key v1alpha1.ApiKey
		s.must(tenant.Get(t.Context(), client.ObjectKey{Namespace: own.Namespace, Name: h.name}, &key))
		h.do(s, tenant, &key)
		disable, err := json.Marshal(map[string]any{"spec": map[string]any{"state": "Disabled", "rotation": map[string]any{"trigger": "leaked"}}})
		s.must(err)
		s.must(tenant.Patch(t.Context(), &key, client.RawPatch(types.MergePatchType, disable)))
		disabled := time.Now()
		for _, r := range s.replicas {
			eventually(t, h.name+": "+r.name+" refuses the key", func() bool {
				got, err := newCaller().call(r.public, http.MethodGet, me, plain, "")
				return err == nil && got.Status == http.StatusUnauthorized
			})
		}
		slowest = max(slowest, time.Since(disabled))
	}
	if slowest > disabledWithin {
		t.Errorf("a key was accepted for %s after it was disabled", slowest)
	}
	return len(hindrances()), fmt.Sprintf("%d ways; refused by 2 replicas after %d ms at most", len(hindrances()), slowest.Milliseconds())
}
