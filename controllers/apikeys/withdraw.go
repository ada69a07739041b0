package apikeys

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// withdraw ends an ApiKey: first its tombstone, then the published Secret, after which the key is dead,
// then what was delivered. The API server is asked, for the cache may not know yet what was written a moment ago.
func (r *Reconciler) withdraw(ctx context.Context, apiKey *v1alpha1.ApiKey) error {
	if !controllerutil.ContainsFinalizer(apiKey, v1alpha1.Finalizer) {
		return nil
	}
	f, err := r.read(ctx, r.Live, apiKey)
	if err != nil {
		return err
	}
	if err := subject.WriteTombstone(ctx, r.Client, r.Live, r.CredentialsNamespace, published.Tombstone{
		Kind:    published.TombstoneApiKey,
		ID:      published.ID(apiKey.UID),
		Source:  published.Source{Namespace: apiKey.Namespace, Name: apiKey.Name, UID: apiKey.UID},
		EndedAt: f.now,
	}); err != nil {
		return err
	}
	if f.published != nil && !f.recordOfAnother() {
		// Whatever a rotation over HTTP makes of it meanwhile, it goes.
		if err := r.Secrets.Delete(ctx, f.published, client.Preconditions{UID: &f.published.UID}); err != nil {
			return err
		}
	}
	seen, err := r.cachedDeliveries(ctx, apiKey)
	if err != nil {
		return err
	}
	if err := r.Secrets.Withdraw(ctx, apiKey, f.secretNames(seen)); err != nil {
		return err
	}
	return subject.Release(ctx, r.Client, apiKey)
}
