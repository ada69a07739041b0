package merchants

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// restrictions is the controller for what only restricts or ends a merchant. Its workers write in the credentials namespace alone, so no
// tenant decides how long another's merchant is accepted. Reconciler, which does the same first, reports the status.
type restrictions struct{ *Reconciler }

// Reconcile publishes what only restricts the Merchant, or ends a deleted one.
func (r restrictions) Reconcile(ctx context.Context, merchant *v1alpha1.Merchant) (reconcile.Result, error) {
	if merchant.DeletionTimestamp.IsZero() {
		if again, err := r.restrict(ctx, merchant); err != nil || !again {
			return reconciler.Finish(err)
		}
		return reconcile.Result{RequeueAfter: reconciler.AfterWrite}, nil
	}
	restricting, release, ok := r.Restrict(ctx, merchant)
	if !ok {
		return reconcile.Result{RequeueAfter: reconciler.AfterWrite}, nil
	}
	defer release()
	_, err := r.revoke(restricting, merchant)
	return reconciler.Finish(err)
}

// restrict publishes what only restricts the Merchant. again: the caches are behind what was published, or another reconciliation is
// about to publish it.
func (r *Reconciler) restrict(ctx context.Context, merchant *v1alpha1.Merchant) (again bool, err error) {
	ctx, release, ok := r.Restrict(ctx, merchant)
	if !ok {
		return true, nil
	}
	defer release()
	return r.publishRestriction(ctx, merchant)
}

// setUpRestrictions registers the controller.
func (r *Reconciler) setUpRestrictions(mgr manager.Manager) error {
	return reconciler.NewRestrictionController(mgr, "merchant-restriction", reconciler.RequestNamespace).
		For(&v1alpha1.Merchant{}, builder.WithPredicates(reconciler.Changes(statusConditions))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.requestsForPublished)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), restrictions{r}))
}
