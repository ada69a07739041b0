package merchants

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// parallel is how many Merchants are worked on at a time; each pass mostly waits for the API server.
const parallel = 4

// SetupWithManager registers the controller with its index and watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Merchant{}, subject.PublishedNameIndex, publishedName); err != nil {
		return fmt.Errorf("index Merchants: %w", err)
	}
	owner := handler.TypedEnqueueRequestForOwner[*metav1.PartialObjectMetadata](
		mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.Merchant{}, handler.OnlyControllerOwner())
	return ctrl.NewControllerManagedBy(mgr).
		Named("merchant").
		For(&v1alpha1.Merchant{}, builder.WithPredicates(subject.Changes(conditions))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.merchantOf)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.merchantOf)).
		WatchesRawSource(source.Kind(r.Secrets.Cache, deliveries.Metadata(), owner)).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// publishedName returns the names of both published objects; no key's Secret has one of them.
func publishedName(object client.Object) []string {
	id := published.ID(object.GetUID())
	return []string{published.MerchantName(id), published.WebhookName(id)}
}

// merchantOf returns the Merchant that the published object is of.
func (r *Reconciler) merchantOf(ctx context.Context, object client.Object) []reconcile.Request {
	var merchants v1alpha1.MerchantList
	if err := r.Client.List(ctx, &merchants, client.MatchingFields{subject.PublishedNameIndex: object.GetName()}); err != nil { // the cache is stopping
		logf.FromContext(ctx).Error(err, "find the Merchant to look at")
	}
	var requests []reconcile.Request
	for i := range merchants.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&merchants.Items[i])})
	}
	return requests
}

func conditions(object client.Object) []metav1.Condition {
	if merchant, ok := object.(*v1alpha1.Merchant); ok {
		return ownConditions(merchant.Status.Conditions)
	}
	return nil
}
