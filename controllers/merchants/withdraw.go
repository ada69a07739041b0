package merchants

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// withdraw ends a Merchant: its tombstone first, for a merchant that vanishes without one may come back
// and its events are kept. Without its ConfigMap all its keys are useless at once. Then its signing
// secret goes, and what was delivered of it. The API server is asked, for the cache may not know yet
// what was published a moment ago. A ConfigMap without our label is not ours, and no reader sees it.
func (r *Reconciler) withdraw(ctx context.Context, merchant *v1alpha1.Merchant) error {
	if !controllerutil.ContainsFinalizer(merchant, v1alpha1.Finalizer) {
		return nil
	}
	f, err := r.gather(ctx, r.Live, merchant)
	if err != nil {
		return err
	}
	if err := subject.WriteTombstone(ctx, r.Client, r.Live, r.CredentialsNamespace, published.Tombstone{
		Kind:    published.TombstoneMerchant,
		ID:      published.ID(merchant.UID),
		Source:  published.Source{Namespace: merchant.Namespace, Name: merchant.Name, UID: merchant.UID},
		EndedAt: f.now,
	}); err != nil {
		return err
	}
	if f.published != nil && f.published.Labels[published.Label] == published.LabelMerchant {
		err := r.Client.Delete(ctx, f.published, client.Preconditions{UID: &f.published.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ConfigMap %s: %w", client.ObjectKeyFromObject(f.published), err)
		}
	}
	if err := r.withdrawSigning(ctx, &f); err != nil {
		return err
	}
	if err := r.Secrets.Withdraw(ctx, merchant, f.secretNames()); err != nil {
		return err
	}
	return subject.Release(ctx, r.Client, merchant)
}
