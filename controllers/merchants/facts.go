package merchants

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// facts are all that a decision about a Merchant needs.
type facts struct {
	now       time.Time
	merchant  *v1alpha1.Merchant
	namespace string            // of published objects
	published *corev1.ConfigMap // nil: none

	// newer says that a newer operator wrote the ConfigMap, newerSigning that it wrote the signing secret.
	newer, newerSigning bool

	// signing is the Secret webhook-<id>; nil: none.
	signing *corev1.Secret
	// record is what it says; nil: nothing that can be used.
	record *published.WebhookRecord
	// target is the Secret of the name that the spec gives the merchant's copy, if it is this
	// Merchant's; nil: it is not, or there is none.
	target *corev1.Secret
	// targetTaken says that somebody else's Secret has that name.
	targetTaken bool
	// delivered are the Secrets that the cache knows to be this Merchant's.
	delivered []metav1.ObjectMeta
}

// untouched reports whether there is no trace of an earlier pass over the Merchant.
func (f facts) untouched() bool {
	return f.merchant.Status.MerchantID == "" && f.published == nil && f.signing == nil && f.target == nil && len(f.delivered) == 0
}

// targetName is the name of the Secret that the signing secret is delivered in; empty: there is no
// webhook.
func (f facts) targetName() string {
	switch webhook := f.merchant.Spec.Webhook; {
	case webhook == nil:
		return ""
	case webhook.SecretName != "":
		return webhook.SecretName
	default:
		return f.merchant.Name + "-webhook"
	}
}

// secretNames are the names under which a Secret of the Merchant's may be.
func (f facts) secretNames() []string {
	var names []string
	if f.targetName() != "" {
		names = append(names, f.targetName())
	}
	for _, secret := range f.delivered {
		if secret.Name != f.targetName() {
			names = append(names, secret.Name)
		}
	}
	return names
}
