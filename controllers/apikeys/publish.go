package apikeys

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// publish writes the record in place of what was read: nothing, or exactly that version of the
// Secret, for the API writes it as well.
func (r *Reconciler) publish(ctx context.Context, read *corev1.Secret, record published.KeyRecord) error {
	secret, err := published.EncodeKey(r.CredentialsNamespace, record)
	if err == nil {
		err = subject.SwapSecret(ctx, r.Client, read, secret)
	}
	if err != nil {
		return fmt.Errorf("publish key %s: %w", record.KeyID, err)
	}
	return nil
}
