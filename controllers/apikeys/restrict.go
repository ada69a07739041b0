package apikeys

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// restrictions is the controller for what only restricts or ends a key. Its workers write in the credentials namespace alone, so no tenant
// decides how long another's key is accepted. All that a person reads of it, the status and the failure, is reported by Reconciler, which does
// the same first.
type restrictions struct{ *Reconciler }

// Reconcile publishes what only restricts the key, or ends the key of a deleted ApiKey.
func (r restrictions) Reconcile(ctx context.Context, apiKey *v1alpha1.ApiKey) (reconcile.Result, error) {
	if apiKey.DeletionTimestamp.IsZero() {
		if _, again, err := r.restrict(ctx, apiKey); err != nil || !again {
			return reconciler.Finish(err)
		}
		return reconcile.Result{RequeueAfter: reconciler.AfterWrite}, nil
	}
	restricting, release, ok := r.Restrict(ctx, apiKey)
	if !ok {
		return reconcile.Result{RequeueAfter: reconciler.AfterWrite}, nil
	}
	defer release()
	_, err := r.revoke(restricting, apiKey)
	return reconciler.Finish(err)
}

// restrict publishes what only restricts the key, and returns the facts from the caches. again: the caches are behind what was published, or
// another reconciliation is about to publish it. With an error, the facts name the ApiKey if the key may be accepted longer than its spec says.
func (r *Reconciler) restrict(ctx context.Context, apiKey *v1alpha1.ApiKey) (cached facts, again bool, err error) {
	ctx, release, ok := r.Restrict(ctx, apiKey)
	if !ok {
		return facts{}, true, nil
	}
	defer release()
	if cached, err = r.readPublished(ctx, apiKey); err != nil {
		return facts{}, false, err
	}
	if again, err = r.publishEnvelope(ctx, cached); err == nil && !again {
		again, err = r.publishRestriction(ctx, cached)
	}
	return cached, again, err
}

// setUpRestrictions registers the controller. A new record is looked at too: the spec may have changed since its facts were read.
func (r *Reconciler) setUpRestrictions(mgr manager.Manager) error {
	return reconciler.NewRestrictionController(mgr, "apikey-restriction", reconciler.RequestNamespace).
		For(&v1alpha1.ApiKey{}, builder.WithPredicates(reconciler.Changes(statusConditions))).
		Watches(&v1alpha1.Merchant{}, reconciler.EnqueueMapped(r.requestsForMerchant), builder.WithPredicates(merchantChanges())).
		Watches(&corev1.Secret{}, reconciler.EnqueueMapped(r.requestsForSecret)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), restrictions{r}))
}
