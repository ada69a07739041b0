package apikeys

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// publish writes the record in place of what was read: nothing, or exactly that version of the
// Secret, for the API writes it as well.
func (r *Reconciler) publish(ctx context.Context, read *corev1.Secret, record published.KeyRecord) error {
	secret, err := published.EncodeKey(r.CredentialsNamespace, record)
	if err == nil {
		err = r.swap(ctx, read, secret)
	}
	if err != nil {
		return fmt.Errorf("publish key %s: %w", record.KeyID, err)
	}
	return nil
}

func (r *Reconciler) swap(ctx context.Context, read, secret *corev1.Secret) error {
	switch {
	case read == nil:
	case read.Type == secret.Type:
		secret.UID, secret.ResourceVersion = read.UID, read.ResourceVersion
	default: // a type cannot be changed, and a record of another type was none
		err := r.deleteSecret(ctx, read.Namespace, read.Name, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion})
		if err != nil {
			return err
		}
	}
	return r.write(ctx, secret)
}
