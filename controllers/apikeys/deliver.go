package apikeys

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
)

// deliver writes the key into the Secret that the spec names.
func (r *Reconciler) deliver(ctx context.Context, f facts, key apikey.Key, generation int64) error {
	existing := f.deliveredAs(f.target())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.apiKey.Namespace, Name: f.target()},
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			dataAPIKey: []byte(key.Reveal()),
			dataKeyID:  []byte(key.ID()),
			dataPrefix: []byte(key.Prefix()),
		},
	}
	if existing != nil {
		existing.DeepCopyInto(&secret.ObjectMeta)
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[GenerationAnnotation] = strconv.FormatInt(generation, 10)
	return r.Secrets.Deliver(ctx, f.apiKey, deliveries.LabelKey, secret)
}
