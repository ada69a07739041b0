package orphans

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// Sweeper looks for orphans. Every field is required.
type Sweeper struct {
	// Client reads through the cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// CredentialsNamespace is where published objects live.
	CredentialsNamespace string
	// Watched reports whether the objects of a namespace are this operator's to manage. It knows
	// nothing of what others are responsible for.
	Watched func(namespace string) bool
}

// keys, merchants and webhooks are the Sweeper's controllers.
type (
	keys      struct{ Sweeper }
	merchants struct{ Sweeper }
	webhooks  struct{ Sweeper }
)

// Reconcile deletes the published key if it is an orphan. One that cannot be decoded tells nobody's
// name, and opens nothing.
func (k keys) Reconcile(ctx context.Context, secret *corev1.Secret) (reconcile.Result, error) {
	record, err := published.DecodeKey(secret)
	if err != nil || !k.Watched(record.Source.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // see above
	}
	source := types.NamespacedName{Namespace: record.Source.Namespace, Name: record.Source.Name}
	return reconcile.Result{}, k.sweep(ctx, secret, &v1alpha1.ApiKeyList{}, &v1alpha1.ApiKey{}, source,
		func(uid types.UID) string { return published.KeyName(published.ID(uid)) })
}

// Reconcile deletes the published merchant if it is an orphan.
func (m merchants) Reconcile(ctx context.Context, configMap *corev1.ConfigMap) (reconcile.Result, error) {
	record, err := published.DecodeMerchant(configMap)
	if err != nil || !m.Watched(record.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // as for keys
	}
	source := types.NamespacedName{Namespace: record.Namespace, Name: record.Name}
	return reconcile.Result{}, m.sweep(ctx, configMap, &v1alpha1.MerchantList{}, &v1alpha1.Merchant{}, source,
		func(uid types.UID) string { return published.MerchantName(published.ID(uid)) })
}

// Reconcile deletes the published signing secret if it is an orphan.
func (w webhooks) Reconcile(ctx context.Context, secret *corev1.Secret) (reconcile.Result, error) {
	record, err := published.DecodeWebhook(secret)
	if err != nil || !w.Watched(record.Source.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // as for keys
	}
	source := types.NamespacedName{Namespace: record.Source.Namespace, Name: record.Source.Name}
	return reconcile.Result{}, w.sweep(ctx, secret, &v1alpha1.MerchantList{}, &v1alpha1.Merchant{}, source,
		func(uid types.UID) string { return published.WebhookName(published.ID(uid)) })
}

// sweep deletes the object if no source has its name: none that the cache knows, wherever it is, and
// not the one that the record names, as the API server has it.
func (s Sweeper) sweep(ctx context.Context, object client.Object, known client.ObjectList, source client.Object,
	named types.NamespacedName, nameOf func(types.UID) string,
) error {
	if err := s.Client.List(ctx, known, client.MatchingFields{subject.PublishedNameIndex: object.GetName()}, client.Limit(1)); err != nil {
		return fmt.Errorf("look for the source of %s: %w", object.GetName(), err)
	}
	if meta.LenList(known) > 0 {
		return nil
	}
	err := s.Live.Get(ctx, named, source)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the source %s of %s: %w", named, object.GetName(), err)
	}
	if err == nil && nameOf(source.GetUID()) == object.GetName() {
		return nil
	}
	uid := object.GetUID()
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, object, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("delete the orphan %s: %w", object.GetName(), err)
	}
	logf.FromContext(ctx).Info("deleted a published object whose source is gone without its finalizer", "source", named.String())
	return nil
}
