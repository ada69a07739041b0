package orphans

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// SetupWithManager registers the controllers. They look at every published object when the operator
// starts and when it changes, and at that of each ApiKey or Merchant which goes.
func (s Sweeper) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Secret{}, claimKeyIndex, claimKey); err != nil {
		return fmt.Errorf("index claims: %w", err)
	}
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
	err = ctrl.NewControllerManagedBy(mgr).
		Named("orphaned-claim").
		For(&corev1.Secret{}, builder.WithPredicates(labelled(published.LabelDigest))).
		Watches(&v1alpha1.ApiKey{}, handler.EnqueueRequestsFromMapFunc(s.claimsOf), builder.WithPredicates(going())).
		Complete(reconcile.AsReconciler(s.Client, claims{s}))
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("tombstone").
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled(published.LabelTombstone))).
		Complete(reconcile.AsReconciler(s.Client, tombstones{s}))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("orphaned-merchant").
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled(published.LabelMerchant))).
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

// claimsOf returns the claims of an ApiKey.
func (s Sweeper) claimsOf(ctx context.Context, apiKey client.Object) []reconcile.Request {
	var claims corev1.SecretList
	if err := s.Client.List(ctx, &claims, client.MatchingFields{claimKeyIndex: published.ID(apiKey.GetUID())}); err != nil { // the cache is stopping
		logf.FromContext(ctx).Error(err, "find the claims of an ApiKey")
	}
	var requests []reconcile.Request
	for i := range claims.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
	}
	return requests
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
