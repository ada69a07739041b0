package orphans

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// Sweeper looks for orphans and for tombstones that have expired. Every field is required.
type Sweeper struct {
	// Client reads through the cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Clock tells when a tombstone expires.
	Clock clock.PassiveClock
	// CredentialsNamespace is where published objects live.
	CredentialsNamespace string
	// Watched reports whether the objects of a namespace are this operator's to manage. It knows
	// nothing of what others are responsible for.
	Watched func(namespace string) bool
}

// keys, merchants, webhooks and claims are the Sweeper's controllers for published objects.
type (
	keys      struct{ Sweeper }
	merchants struct{ Sweeper }
	webhooks  struct{ Sweeper }
	claims    struct{ Sweeper }
)

// Reconcile deletes the published key if it is an orphan. One that cannot be decoded tells nobody's
// name, and opens nothing.
func (k keys) Reconcile(ctx context.Context, secret *corev1.Secret) (reconcile.Result, error) {
	record, err := published.DecodeKey(secret)
	if err != nil || !k.Watched(record.Source.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // see above
	}
	return reconcile.Result{}, k.sweep(ctx, secret, published.Tombstone{
		Kind: published.TombstoneApiKey, ID: record.KeyID, Source: record.Source,
	})
}

// Reconcile deletes the published merchant if it is an orphan.
func (m merchants) Reconcile(ctx context.Context, configMap *corev1.ConfigMap) (reconcile.Result, error) {
	record, err := published.DecodeMerchant(configMap)
	if err != nil || !m.Watched(record.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // as for keys
	}
	return reconcile.Result{}, m.sweep(ctx, configMap, published.Tombstone{
		Kind: published.TombstoneMerchant, ID: record.MerchantID,
		Source: published.Source{Namespace: record.Namespace, Name: record.Name, UID: record.UID},
	})
}

// Reconcile deletes the published signing secret if it is an orphan.
func (w webhooks) Reconcile(ctx context.Context, secret *corev1.Secret) (reconcile.Result, error) {
	record, err := published.DecodeWebhook(secret)
	if err != nil || !w.Watched(record.Source.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // as for keys
	}
	return reconcile.Result{}, w.sweep(ctx, secret, published.Tombstone{
		Kind: published.TombstoneMerchant, ID: record.MerchantID, Source: record.Source,
	})
}

// Reconcile writes the tombstone of a claim's ApiKey that has ended without one, from which the time
// counts that the claim stays.
func (c claims) Reconcile(ctx context.Context, secret *corev1.Secret) (reconcile.Result, error) {
	claim, err := published.DecodeDigestClaim(secret)
	if err != nil || !c.Watched(claim.Source.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // as for keys
	}
	ended := published.Tombstone{Kind: published.TombstoneApiKey, ID: claim.KeyID, Source: claim.Source}
	orphaned, err := c.orphaned(ctx, ended)
	if err != nil || !orphaned {
		return reconcile.Result{}, err
	}
	// An expired claim goes before its tombstone does, and the cache may not know yet.
	err = c.Live.Get(ctx, client.ObjectKeyFromObject(secret), new(corev1.Secret))
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return reconcile.Result{}, c.bury(ctx, ended)
}

// sweep deletes the object if what it was published for has ended.
func (s Sweeper) sweep(ctx context.Context, object client.Object, ended published.Tombstone) error {
	orphaned, err := s.orphaned(ctx, ended)
	if err != nil || !orphaned {
		return err
	}
	if err := s.bury(ctx, ended); err != nil {
		return err
	}
	uid := object.GetUID()
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, object, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("delete the orphan %s: %w", object.GetName(), err)
	}
	logf.FromContext(ctx).Info("deleted a published object whose source is gone without its finalizer",
		"source", ended.Source.Namespace+"/"+ended.Source.Name)
	return nil
}

// orphaned reports whether there is no such ApiKey or Merchant: none that the cache knows, wherever it
// is, and not the one of the source's name, as the API server has it.
func (s Sweeper) orphaned(ctx context.Context, ended published.Tombstone) (bool, error) {
	var (
		known  client.ObjectList = &v1alpha1.ApiKeyList{}
		source client.Object     = &v1alpha1.ApiKey{}
		name                     = published.KeyName(ended.ID)
	)
	if ended.Kind == published.TombstoneMerchant {
		known, source, name = &v1alpha1.MerchantList{}, &v1alpha1.Merchant{}, published.MerchantName(ended.ID)
	}
	if err := s.Client.List(ctx, known, client.MatchingFields{subject.PublishedNameIndex: name}, client.Limit(1)); err != nil {
		return false, fmt.Errorf("find the source of %s: %w", name, err)
	}
	if meta.LenList(known) > 0 {
		return false, nil
	}
	named := types.NamespacedName{Namespace: ended.Source.Namespace, Name: ended.Source.Name}
	switch err := s.Live.Get(ctx, named, source); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read the source %s of %s: %w", named, name, err)
	}
	return published.ID(source.GetUID()) != ended.ID, nil
}

// bury writes the tombstone. That of a Merchant whose record does not tell its UID says its id instead.
func (s Sweeper) bury(ctx context.Context, ended published.Tombstone) error {
	ended.EndedAt = s.Clock.Now().UTC()
	if ended.Source.UID == "" {
		ended.Source.UID = types.UID(ended.ID)
	}
	return subject.WriteTombstone(ctx, s.Client, s.Live, s.CredentialsNamespace, ended)
}
