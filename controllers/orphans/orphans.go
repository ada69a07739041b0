// Package orphans deletes published objects whose ApiKey or Merchant was deleted without its finalizer, for example
// by hand. Such a key would stay valid forever. It also deletes tombstones that have expired or are too many, and the claims that end
// with them.
package orphans

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
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
	"github.com/merchant-operator/merchant-operator/controllers/budget"
	"github.com/merchant-operator/merchant-operator/controllers/index"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

// Sweeper finds orphans and expired tombstones. Every field is required.
type Sweeper struct {
	// Client reads from the cache.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Tombstones finds the tombstones of deleted objects.
	Tombstones *budget.Index
	Audit      auditlog.Log
	// Clock is used for the expiry of tombstones.
	Clock clock.PassiveClock
	// ClockWrong reports whether the clock differs too much from that of the API server, at the last answer. Then no tombstone expires.
	ClockWrong func() bool
	// CredentialsNamespace is the namespace of the published objects.
	CredentialsNamespace string
	// Watched reports whether this operator manages the objects of a namespace.
	Watched func(namespace string) bool
}

// keys, merchants, webhooks and claims are the Sweeper's controllers for published objects.
type (
	keys      struct{ Sweeper }
	merchants struct{ Sweeper }
	webhooks  struct{ Sweeper }
	claims    struct{ Sweeper }
)

// SetupWithManager registers the controllers. The controllers that revoke keys and merchants serve the tenants in turn. All check every published
// object when the operator starts and when the object changes, and the objects of each deleted ApiKey or Merchant.
func (s Sweeper) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Secret{}, claimKeyIndex, claimKey); err != nil {
		return fmt.Errorf("index claims: %w", err)
	}
	if err := budget.Add(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	err := reconciler.NewRestrictionController(mgr, "orphaned-key", s.tenantOfKey).
		For(&corev1.Secret{}, builder.WithPredicates(labelled(published.LabelKey), sourceless(ctx, s, index.ApiKeys))).
		Watches(&v1alpha1.ApiKey{}, s.publishedAs(published.KeyName), builder.WithPredicates(onEnd())).
		Complete(reconcile.AsReconciler(s.Client, keys{s}))
	if err != nil {
		return err
	}
	err = reconciler.NewController(mgr, "orphaned-webhook", s.tenantOfWebhook).
		For(&corev1.Secret{}, builder.WithPredicates(labelled(published.LabelWebhook), sourceless(ctx, s, index.Merchants))).
		Watches(&v1alpha1.Merchant{}, s.publishedAs(published.WebhookName), builder.WithPredicates(onEnd())).
		Complete(reconcile.AsReconciler(s.Client, webhooks{s}))
	if err != nil {
		return err
	}
	err = reconciler.NewController(mgr, "orphaned-claim", s.tenantOfClaim).
		For(&corev1.Secret{}, builder.WithPredicates(labelled(published.LabelDigest))).
		Watches(&v1alpha1.ApiKey{}, handler.EnqueueRequestsFromMapFunc(s.requestsForClaims), builder.WithPredicates(onEnd())).
		Complete(reconcile.AsReconciler(s.Client, claims{s}))
	if err != nil {
		return err
	}
	err = reconciler.NewController(mgr, "tombstone", s.tenantOfTombstone).
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled(published.LabelTombstone))).
		Complete(reconcile.AsReconciler(s.Client, tombstones{s}))
	if err != nil {
		return err
	}
	return reconciler.NewRestrictionController(mgr, "orphaned-merchant", s.tenantOfMerchant).
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled(published.LabelMerchant), sourceless(ctx, s, index.Merchants))).
		Watches(&v1alpha1.Merchant{}, s.publishedAs(published.MerchantName), builder.WithPredicates(onEnd())).
		Complete(reconcile.AsReconciler(s.Client, merchants{s}))
}

// tenantOfKey returns the namespace of the ApiKey whose record a request names; empty: the cache has no record that says it.
func (s Sweeper) tenantOfKey(request reconcile.Request) string {
	return tenantOf(s, request, func(secret *corev1.Secret) (string, error) {
		record, err := published.DecodeKeyEnvelope(secret)
		return record.Source.Namespace, err
	})
}

// tenantOfMerchant returns the namespace of the Merchant whose ConfigMap a request names; empty: the cache has none that says it.
func (s Sweeper) tenantOfMerchant(request reconcile.Request) string {
	return tenantOf(s, request, func(configMap *corev1.ConfigMap) (string, error) {
		record, err := published.DecodeMerchantEnvelope(configMap)
		return record.Namespace, err
	})
}

// tenantOfWebhook returns the namespace of the Merchant whose signing secret a request names.
func (s Sweeper) tenantOfWebhook(request reconcile.Request) string {
	return tenantOf(s, request, func(secret *corev1.Secret) (string, error) {
		record, err := published.DecodeWebhookEnvelope(secret)
		return record.Source.Namespace, err
	})
}

// tenantOfClaim returns the namespace of the ApiKey whose claim a request names.
func (s Sweeper) tenantOfClaim(request reconcile.Request) string {
	return tenantOf(s, request, func(secret *corev1.Secret) (string, error) {
		claim, err := published.DecodeDigestClaim(secret)
		return claim.Source.Namespace, err
	})
}

// tenantOfTombstone returns the namespace of the deleted object whose tombstone a request names.
func (s Sweeper) tenantOfTombstone(request reconcile.Request) string {
	return tenantOf(s, request, func(configMap *corev1.ConfigMap) (string, error) {
		tombstone, err := published.DecodeTombstone(configMap)
		return tombstone.Source.Namespace, err
	})
}

// tenantOf returns the namespace that a published object names; empty: the cache has no object that says it.
func tenantOf[T any, O reconciler.Object[T]](s Sweeper, request reconcile.Request, namespace func(O) (string, error)) string {
	object := O(new(T))
	if err := s.Client.Get(context.Background(), request.NamespacedName, object, client.UnsafeDisableDeepCopy); err != nil {
		return ""
	}
	tenant, err := namespace(object)
	if err != nil {
		return ""
	}
	return tenant
}

func (s Sweeper) publishedAs(name func(id string) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, source client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{
			Namespace: s.CredentialsNamespace, Name: name(published.ID(source.GetUID())),
		}}}
	})
}

// requestsForClaims returns the claims of an ApiKey.
func (s Sweeper) requestsForClaims(ctx context.Context, apiKey client.Object) []reconcile.Request {
	return reconciler.Requests(ctx, s.Client, &corev1.SecretList{}, client.MatchingFields{claimKeyIndex: published.ID(apiKey.GetUID())})
}

func labelled(kind string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[published.Label] == kind
	})
}

// sourceless passes published objects without a source in the cache, which are few. The end of a source is an event of its own.
func sourceless[O client.Object](ctx context.Context, s Sweeper, by index.Index[O]) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		known, err := hasSource(ctx, s, by, object.GetName())
		return err != nil || !known
	})
}

// onEnd passes the end of an object: its deletion, or another object of its name, which is one update if the watch was lost meanwhile.
// Handlers look at both objects of an update.
func onEnd() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
	}
}

// Reconcile deletes the published key if it is an orphan. Of one of a newer version the envelope is enough: replicas follow it. A key
// that cannot be decoded is kept, because its source is unknown.
func (k keys) Reconcile(ctx context.Context, secret *corev1.Secret) (reconcile.Result, error) {
	record, err := published.DecodeKey(secret)
	if errors.Is(err, published.ErrNewerVersion) {
		record, err = published.DecodeKeyEnvelope(secret)
	}
	if err != nil || !k.Watched(record.Source.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // see above
	}
	return k.sweep(ctx, secret, published.Tombstone{
		Kind: published.TombstoneApiKey, ID: record.KeyID, Source: record.Source, MerchantID: record.MerchantID,
	}, func() error {
		// With the ApiKey went its status: whether the last rotation was reported is unknown.
		k.Audit.Write(ctx, append(auditlog.Rotation(record), auditlog.About(record, auditlog.Deleted, auditlog.Spec))...)
		return writes.DisableKey(ctx, k.Client, secret, k.Clock.Now())
	}, func() error {
		var claims corev1.SecretList
		own := client.MatchingFields{claimKeyIndex: record.KeyID}
		if err := k.Client.List(ctx, &claims, own, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("find the claims of %s: %w", secret.Name, err)
		}
		return writes.RetireClaims(ctx, k.Client, secret, claims.Items)
	})
}

// Reconcile deletes the published merchant if it is an orphan. An envelope without a source is kept.
func (m merchants) Reconcile(ctx context.Context, configMap *corev1.ConfigMap) (reconcile.Result, error) {
	record, err := published.DecodeMerchant(configMap)
	if errors.Is(err, published.ErrNewerVersion) {
		record, err = published.DecodeMerchantEnvelope(configMap)
	}
	if err != nil || record.Namespace == "" || record.Name == "" || !m.Watched(record.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // as for keys
	}
	return m.sweep(ctx, configMap, published.Tombstone{
		Kind: published.TombstoneMerchant, ID: record.MerchantID,
		Source: published.Source{Namespace: record.Namespace, Name: record.Name, UID: record.UID},
	}, func() error { return writes.CloseMerchant(ctx, m.Client, configMap) }, nothing)
}

// Reconcile deletes the published signing secret if it is an orphan, also by its envelope: a secret of nobody must not stay.
func (w webhooks) Reconcile(ctx context.Context, secret *corev1.Secret) (reconcile.Result, error) {
	record, err := published.DecodeWebhook(secret)
	if errors.Is(err, published.ErrNewerVersion) {
		record, err = published.DecodeWebhookEnvelope(secret)
	}
	if err != nil || !w.Watched(record.Source.Namespace) {
		return reconcile.Result{}, nil //nolint:nilerr // as for keys
	}
	return w.sweep(ctx, secret, published.Tombstone{
		Kind: published.TombstoneMerchant, ID: record.MerchantID, Source: record.Source,
	}, func() error {
		w.Audit.Write(ctx, auditlog.SigningWithdrawn(record))
		return nil
	}, nothing)
}

// nothing is retired with an object that is no key.
func nothing() error { return nil }

// Reconcile writes the tombstone of a claim's ApiKey that was deleted without one. The claim stays as long as the
// tombstone. One of a newer version stays until a newer operator comes: it only restricts.
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
	// When both expire, the claim is deleted before the tombstone. They are read in the opposite order: if the tombstone is missing
	// and the claim is still there, the tombstone was never written.
	var tombstone corev1.ConfigMap
	name := client.ObjectKey{Namespace: c.CredentialsNamespace, Name: published.KeyTombstoneName(ended.ID)}
	err = c.APIReader.Get(ctx, name, &tombstone)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read the tombstone %s: %w", name.Name, err)
	}
	_, unreadable := published.DecodeTombstone(&tombstone)
	if unreadable == nil && tombstone.Labels[published.Label] == published.LabelTombstone {
		return reconcile.Result{}, nil
	}
	err = c.APIReader.Get(ctx, client.ObjectKeyFromObject(secret), new(corev1.Secret))
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return reconcile.Result{}, c.writeTombstone(ctx, ended)
}

// sweep revokes the object if its source was deleted, retires its claims, remembers the end, and then deletes the object. If revoking it is
// refused, the tombstone and the deletion end it, each of them alone. A key that was rotated meanwhile has another digest to retire, so it is
// deleted in the version that was revoked.
func (s Sweeper) sweep(ctx context.Context, object client.Object, ended published.Tombstone, revoke, retire func() error) (reconcile.Result, error) {
	orphaned, err := s.orphaned(ctx, ended)
	if err != nil || !orphaned {
		return reconcile.Result{}, err
	}
	unrevoked := revoke()
	if reconciler.Superseded(unrevoked) {
		return reconciler.Finish(unrevoked)
	}
	unretired, unremembered := retire(), s.writeTombstone(ctx, ended)
	if unrevoked == nil || unremembered == nil { // it has ended
		if unfinished := errors.Join(unretired, unremembered); unfinished != nil {
			return reconciler.Finish(unfinished)
		}
	}
	preconditions := client.Preconditions{UID: new(object.GetUID())}
	if ended.Kind == published.TombstoneApiKey {
		preconditions.ResourceVersion = new(object.GetResourceVersion())
	}
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, object, preconditions)); err != nil {
		return reconciler.Finish(fmt.Errorf("delete the orphaned object %s: %w", object.GetName(), err))
	}
	logf.FromContext(ctx).Info("deleted a published object whose source is gone",
		"source", ended.Source.Namespace+"/"+ended.Source.Name)
	return reconcile.Result{}, nil
}

// orphaned reports whether the source does not exist: no object with its UID in the cache, and none of its name with
// that UID on the API server. An object that is being deleted does not exist, whatever finalizers hold it.
func (s Sweeper) orphaned(ctx context.Context, ended published.Tombstone) (bool, error) {
	if ended.Kind == published.TombstoneMerchant {
		return orphanedFrom(ctx, s, index.Merchants, published.MerchantName(ended.ID), ended, &v1alpha1.Merchant{})
	}
	return orphanedFrom(ctx, s, index.ApiKeys, published.KeyName(ended.ID), ended, &v1alpha1.ApiKey{})
}

func orphanedFrom[O client.Object](ctx context.Context, s Sweeper, by index.Index[O], name string, ended published.Tombstone, source O) (bool, error) {
	if known, err := hasSource(ctx, s, by, name); err != nil || known {
		return false, err
	}
	named := types.NamespacedName{Namespace: ended.Source.Namespace, Name: ended.Source.Name}
	switch err := s.APIReader.Get(ctx, named, source); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read the source %s of %s: %w", named, name, err)
	}
	return published.ID(source.GetUID()) != ended.ID || !source.GetDeletionTimestamp().IsZero(), nil
}

// hasSource reports whether the cache has the source of the published object of that name. One that is being deleted is none.
func hasSource[O client.Object](ctx context.Context, s Sweeper, by index.Index[O], name string) (bool, error) {
	sources, err := by.Find(ctx, s.Client, name)
	if err != nil {
		return false, fmt.Errorf("find the source of %s: %w", name, err)
	}
	return slices.ContainsFunc(sources, func(source O) bool { return source.GetDeletionTimestamp().IsZero() }), nil
}

// writeTombstone uses the id of a Merchant if its record has no UID.
func (s Sweeper) writeTombstone(ctx context.Context, ended published.Tombstone) error {
	ended.EndedAt = s.Clock.Now().UTC()
	if ended.Source.UID == "" {
		ended.Source.UID = types.UID(ended.ID)
	}
	return writes.Tombstone(ctx, s.Client, s.APIReader, s.CredentialsNamespace, ended)
}
