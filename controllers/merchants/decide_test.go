package merchants

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func merchant() *v1alpha1.Merchant {
	return &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "coffee", UID: "0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e"},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "Acme Coffee",
			State:       v1alpha1.MerchantActive,
			Currency:    v1alpha1.DefaultCurrency,
			IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24"},
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
			Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
		},
	}
}

func TestDecide(t *testing.T) {
	for desc, tc := range map[string]struct {
		edit func(*v1alpha1.Merchant, *corev1.ConfigMap) *corev1.ConfigMap
		want bool // that it is written
	}{
		"published": {edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap { return c }},
		"somebody added a label": {edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			c.Labels["team"] = "payments"
			return c
		}},
		"not published": {want: true, edit: func(*v1alpha1.Merchant, *corev1.ConfigMap) *corev1.ConfigMap { return nil }},
		"the spec changed": {want: true, edit: func(m *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			m.Spec.State = v1alpha1.MerchantSuspended
			return c
		}},
		"somebody took the label": {want: true, edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			c.Labels = nil
			return c
		}},
		"somebody added data": {want: true, edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			c.Data["more"] = "x"
			return c
		}},
		"somebody added binary data": {want: true, edit: func(_ *v1alpha1.Merchant, c *corev1.ConfigMap) *corev1.ConfigMap {
			c.BinaryData = map[string][]byte{"more": {1}}
			return c
		}},
	} {
		t.Run(desc, func(t *testing.T) {
			m := merchant()
			configMap, err := published.EncodeMerchant("credentials", published.NewMerchantRecord(m))
			if err != nil {
				t.Fatal(err)
			}
			p, err := decide(facts{merchant: m, namespace: "credentials", published: tc.edit(m, configMap)})
			if err != nil || (p.publish != nil) != tc.want {
				t.Fatalf("decide: write %t, %v; want %t", p.publish != nil, err, tc.want)
			}
			if p.publish == nil {
				return
			}
			record, err := published.DecodeMerchant(p.publish)
			if err != nil || record.State != m.Spec.State || p.publish.Namespace != "credentials" {
				t.Errorf("writes %+v, %v", record, err)
			}
		})
	}
}

// What the data plane would not understand is not written over what it does.
func TestDecideRefusesWhatCannotBePublished(t *testing.T) {
	m := merchant()
	m.Spec.IPAllowlist = []v1alpha1.IPBlock{"everyone"}
	if p, err := decide(facts{merchant: m, namespace: "credentials"}); err == nil || p.publish != nil {
		t.Errorf("decide: write %t, %v", p.publish != nil, err)
	}
}
