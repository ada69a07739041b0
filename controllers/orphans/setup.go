package orphans

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// SetupWithManager registers the controllers. They look at every published object when the operator
// starts and when it changes, and at that of each ApiKey or Merchant which goes.
func (s Sweeper) SetupWithManager(mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("orphaned-key").
		For(&corev1.Secret{}, builder.WithPredicates(labelled(published.LabelKey))).
		Watches(&v1alpha1.ApiKey{}, s.publishedAs(published.KeyName), builder.WithPredicates(going())).
		Complete(reconcile.AsReconciler(s.Client, keys{s}))
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("orphaned-webhook").
		For(&corev1.Secret{}, builder.WithPredicates(labelled(published.LabelWebhook))).
		Watches(&v1alpha1.Merchant{}, s.publishedAs(published.WebhookName), builder.WithPredicates(going())).
		Complete(reconcile.AsReconciler(s.Client, webhooks{s}))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("orphaned-merchant").
		For(&corev1.ConfigMap{}).
		Watches(&v1alpha1.Merchant{}, s.publishedAs(published.MerchantName), builder.WithPredicates(going())).
		Complete(reconcile.AsReconciler(s.Client, merchants{s}))
}

func (s Sweeper) publishedAs(name func(id string) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, source client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{
			Namespace: s.CredentialsNamespace, Name: name(published.ID(source.GetUID())),
		}}}
	})
}

func labelled(kind string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[published.Label] == kind
	})
}

func going() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}
