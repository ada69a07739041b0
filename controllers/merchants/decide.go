package merchants

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// plan is what is to be done about a Merchant.
type plan struct {
	facts
	// publish is the ConfigMap to be written; nil: it is there as it should be.
	publish *corev1.ConfigMap
}

// decide is pure. Its error says that the Merchant has no published form.
func decide(f facts) (plan, error) {
	p := plan{facts: f}
	want, err := published.EncodeMerchant(f.namespace, published.NewMerchantRecord(f.merchant))
	if err != nil {
		return p, fmt.Errorf("publish the Merchant: %w", err)
	}
	if f.published == nil || !says(f.published, want) {
		p.publish = want
	}
	return p, nil
}

// says reports whether the ConfigMap holds what is wanted and nothing else. Other labels do not count.
func says(got, want *corev1.ConfigMap) bool {
	return got.Labels[published.Label] == want.Labels[published.Label] &&
		maps.Equal(got.Data, want.Data) && len(got.BinaryData) == 0
}
