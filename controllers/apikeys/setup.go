package apikeys

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// parallel is how many ApiKeys are worked on at a time; each pass mostly waits for the API server.
const parallel = 8

// SetupWithManager registers the controller with its indexes and watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	owner := handler.TypedEnqueueRequestForOwner[*metav1.PartialObjectMetadata](
		mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.ApiKey{}, handler.OnlyControllerOwner())
	return ctrl.NewControllerManagedBy(mgr).
		Named("apikey").
		For(&v1alpha1.ApiKey{}, builder.WithPredicates(subject.Changes(conditions))).
		Watches(&v1alpha1.Merchant{}, handler.EnqueueRequestsFromMapFunc(r.keysOf), builder.WithPredicates(comingAndGoing())).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.keyOf)).
		WatchesRawSource(source.Kind(r.Secrets.Cache, deliveries.Metadata(), owner)).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// comingAndGoing lets pass what a key wants to know of its Merchant: that it exists, or goes.
func comingAndGoing() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}}
}

func conditions(object client.Object) []metav1.Condition {
	if apiKey, ok := object.(*v1alpha1.ApiKey); ok {
		return apiKey.Status.Conditions
	}
	return nil
}
