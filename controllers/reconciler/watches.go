package reconciler

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
)

// PublishedNameIndex finds a Merchant or an ApiKey by the name of its published object, because the content of the
// object may be damaged.
const PublishedNameIndex = "published.name"

// Changes passes changes of the spec, the loss of the finalizer or of the status, and another object of the same
// name. The operator's own status writes do not pass: otherwise a failure with a varying message would be retried
// without back-off.
func Changes(conditionsOf func(client.Object) []metav1.Condition) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetGeneration() != after.GetGeneration() ||
			before.GetUID() != after.GetUID() ||
			controllerutil.ContainsFinalizer(before, v1alpha1.Finalizer) && !controllerutil.ContainsFinalizer(after, v1alpha1.Finalizer) ||
			len(conditionsOf(after)) == 0
	}}
}

// TenantSecrets watches the Secrets that belong to objects of owner's kind, in tenants' namespaces.
func (b *Base) TenantSecrets(mgr manager.Manager, owner client.Object) source.Source {
	return source.Kind(b.Secrets.Cache, tenantsecret.Metadata(), handler.TypedEnqueueRequestForOwner[*metav1.PartialObjectMetadata](
		mgr.GetScheme(), mgr.GetRESTMapper(), owner, handler.OnlyControllerOwner()))
}

// Requests returns a request for each object that the list finds in the cache.
func Requests(ctx context.Context, reader client.Reader, list client.ObjectList, options ...client.ListOption) []reconcile.Request {
	if err := reader.List(ctx, list, options...); err != nil { // the cache is stopping
		logf.FromContext(ctx).Error(err, "could not list the objects to reconcile")
	}
	var requests []reconcile.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error { // the error is that of this function
		if object, ok := item.(client.Object); ok {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return requests
}
