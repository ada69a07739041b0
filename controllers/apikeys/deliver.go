package apikeys

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// deliver writes the key into the Secret that the spec names: a new one, or this ApiKey's own if it
// is still as it was read. Create fails if anybody else has taken the name since.
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
	if existing != nil { // what others have put on it stays, such as a replicator's annotations
		existing.DeepCopyInto(&secret.ObjectMeta)
	}
	secret.Labels = with(secret.Labels, deliveredLabel, deliveredKey)
	secret.Annotations = with(secret.Annotations, generationAnnotation, strconv.FormatInt(generation, 10))
	// Blocking the owner's deletion would need a right of its own, and serves nothing: there is a finalizer.
	err := controllerutil.SetControllerReference(f.apiKey, secret, r.Client.Scheme(), controllerutil.WithBlockOwnerDeletion(false))
	if err == nil {
		err = r.write(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("deliver the key in Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

// write creates a Secret, or updates the version of it that was read.
func (r *Reconciler) write(ctx context.Context, secret *corev1.Secret) error {
	if secret.ResourceVersion == "" {
		return r.Client.Create(ctx, secret, client.FieldOwner(subject.FieldOwner))
	}
	return r.Client.Update(ctx, secret, client.FieldOwner(subject.FieldOwner))
}

func with(entries map[string]string, key, value string) map[string]string {
	out := maps.Clone(entries)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}
