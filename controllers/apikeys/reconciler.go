// Package apikeys issues, delivers, publishes, rotates and deletes API keys.
//
// A reconciliation gathers facts, decides (a pure function) and applies the plan. The published record is the source
// of truth; see docs/design/operator.md.
package apikeys

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/lastuse"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// Reconciler issues, publishes, delivers and withdraws keys. Every exported field is required.
type Reconciler struct {
	*reconciler.Base
	Metrics *Metrics
	// LastUses has the uses of keys. Those whose status has outdated ones come through Outdated.
	LastUses *lastuse.Index
	Outdated <-chan event.TypedGenericEvent[*v1alpha1.ApiKey]
	OldKeys  OldKeyTimes

	versions versions
	audited  audited
	// unpublished are the keys that this operator has delivered and not published, by the UID of the ApiKey. What it forgets is delivered
	// again with another key.
	unpublished *lru.Cache
}

// Rights: ApiKeys are read, and only their finalizer and status are written. Delivered Secrets are created, read to
// check the owner and to resume or move a delivery, updated by a rotation, listed and watched (metadata only) to
// repair them, and deleted. RBAC cannot narrow this to the operator's own Secrets.
//
// +kubebuilder:rbac:groups=merchant-operator.io,resources=apikeys,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=merchant-operator.io,resources=apikeys/status,verbs=patch
// +kubebuilder:rbac:groups=merchant-operator.io,resources=merchants,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete,namespace=merchant-operator-credentials
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

// Update plans and applies, and writes the audit lines of rotations.
func (r *Reconciler) Update(ctx context.Context, cached facts, created bool) (facts, error) { //nolint:revive // its facts are for reconciler.Driver only
	p, err := r.plan(ctx, cached, created)
	r.auditRotations(ctx, p.facts)
	if err != nil {
		return p.facts, err
	}
	return r.apply(ctx, p)
}

// plan decides from the caches if that is certain: there is nothing to do, or it is the first key of a new ApiKey, because all writes are
// creations, which fail if anything exists. If the cached Merchant is outdated, another key follows. An externally generated key cannot
// be followed by another, so it is not certain. What is not certain is decided again from the API server, so that a late cache, such as
// that of a new leader, undoes or repeats nothing.
func (r *Reconciler) plan(ctx context.Context, cached facts, created bool) (*plan, error) {
	cached, err := r.gather(ctx, r.Cached(), cached)
	if err != nil {
		cached.incomplete = true
		return &plan{facts: cached}, err
	}
	p := decide(cached)
	if p.idle() || created && p.newKey != nil && p.digest == nil && cached.untouched() {
		return p, nil
	}
	f, err := r.ReadPublished(ctx, r.Uncached(), cached.apiKey)
	if err == nil {
		f, err = r.gather(ctx, r.Uncached(), f)
	}
	if err != nil {
		f.incomplete = true
		return &plan{facts: f}, err
	}
	return decide(f), nil
}

// apply executes the plan, and returns the facts as they are then, also if it fails. After a new key nothing else is done in this
// reconciliation.
func (r *Reconciler) apply(ctx context.Context, p *plan) (facts, error) {
	f := p.facts
	if err := r.writeClaims(ctx, f, p.claims); err != nil {
		return f, err
	}
	if p.newKey != nil {
		err := r.issue(ctx, &f, *p.newKey)
		return f, err
	}
	if p.repair != nil {
		if err := r.publishAndEmit(ctx, &f, *p.repair); err != nil {
			return f, err
		}
		if p.ignoresTrigger() {
			r.Warn(f.apiKey, reasonTriggerIgnored, actionDeliver,
				"rotation.trigger is ignored for an externally generated key; change spec.keyDigest to replace it")
		}
	}
	if p.move != nil {
		if err := r.move(ctx, &f, *p.move); err != nil {
			return f, err
		}
	}
	err := r.removeDelivered(ctx, &f, p.remove)
	return f, err
}

// errStillAccepted: nothing of a deleted ApiKey could be changed, so that its key works as before.
var errStillAccepted = errors.New("the key still works")

// Revoke ends the key, and returns the names of delivered Secrets. Nothing delays the revocation, and the record stays until the tombstone is written
// and claims are retired, so that an interruption forgets nothing. If disabling the key is refused, the tombstone and the deletion end it, each
// of them alone. An ApiKey that never had a record, a claim or a delivery leaves no tombstone. It reads from the API server, because the cache
// may be late.
func (r *Reconciler) Revoke(ctx context.Context, apiKey *v1alpha1.ApiKey) ([]string, error) {
	secret, err := r.uncachedSecret(ctx, apiKey)
	if err != nil {
		return nil, err
	}
	var undisabled, unretired, unremembered error
	if secret != nil {
		r.auditDeletion(ctx, apiKey, secret)
		if undisabled = writes.DisableKey(ctx, r.Client, secret, r.Clock.Now()); reconciler.Superseded(undisabled) {
			return nil, undisabled
		}
	}
	cached, err := r.cachedDelivered(ctx, apiKey)
	if err != nil {
		return nil, err
	}
	claims, err := r.ownClaims(ctx, apiKey)
	if err != nil {
		return nil, err
	}
	if secret != nil {
		unretired = writes.RetireClaims(ctx, r.Client, secret, claims)
	}
	if secret != nil || len(cached) > 0 || len(claims) > 0 {
		unremembered = r.WriteTombstone(ctx, published.TombstoneApiKey, apiKey, merchantID(secret))
	}
	unfinished := errors.Join(unretired, unremembered)
	if unfinished != nil && (undisabled == nil || unremembered == nil) {
		return nil, unfinished // the key has ended
	}
	if secret != nil {
		// If it was rotated meanwhile, which a person may do with a disabled key, there is another digest to retire.
		undeleted := r.Secrets.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
		if undeleted != nil && undisabled != nil && unremembered != nil {
			return nil, fmt.Errorf("%w: %w", errStillAccepted, errors.Join(undisabled, unfinished, undeleted))
		}
		unfinished = errors.Join(unfinished, undeleted)
	}
	if unfinished != nil {
		return nil, unfinished
	}
	r.Metrics.forget(apiKey.UID)
	r.versions.forget(published.ID(apiKey.UID))
	r.audited.forget(published.ID(apiKey.UID))
	r.unpublished.Remove(apiKey.UID)
	return facts{apiKey: apiKey}.secretNames(cached), nil
}

// merchantID returns the id of the Merchant of a published key; empty: nothing says which one it is.
func merchantID(secret *corev1.Secret) string {
	if secret == nil {
		return ""
	}
	record, err := published.DecodeKeyEnvelope(secret)
	if err != nil {
		return ""
	}
	return record.MerchantID
}

// uncachedSecret returns the Secret that publishes the key of the ApiKey, from the API server; nil: there is none, or it holds the record of
// another ApiKey.
func (r *Reconciler) uncachedSecret(ctx context.Context, apiKey *v1alpha1.ApiKey) (*corev1.Secret, error) {
	name := client.ObjectKey{Namespace: r.CredentialsNamespace, Name: published.KeyName(published.ID(apiKey.UID))}
	secret := new(corev1.Secret)
	if err := r.APIReader.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	if record, err := published.DecodeKey(secret); err == nil && record.Source.UID != apiKey.UID {
		return nil, nil
	}
	return secret, nil
}

// parallel is the number of concurrent reconciliations, which mostly wait for the API server. The objects of one namespace have a quarter.
const parallel = 32

// SetupWithManager registers the controller with its indexes and watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	r.unpublished = lru.New(maxUnpublished)
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	driver := reconciler.Driver[*v1alpha1.ApiKey, facts]{Base: r.Base, Kind: r, Tombstone: published.TombstoneApiKey}
	// A new record is looked at for a restriction too: the spec may have changed since its facts were read.
	err := reconciler.NewRestrictionController(mgr, "apikey-restriction", reconciler.RequestNamespace).
		For(&v1alpha1.ApiKey{}, builder.WithPredicates(reconciler.Changes(statusConditions))).
		Watches(&v1alpha1.Merchant{}, reconciler.EnqueueMapped(r.requestsForMerchant), builder.WithPredicates(merchantChanges())).
		Watches(&corev1.Secret{}, reconciler.EnqueueMapped(r.requestsForSecret)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), reconciler.Restrictions[*v1alpha1.ApiKey, facts]{Driver: driver}))
	if err != nil {
		return err
	}
	return reconciler.NewTenantController(mgr, "apikey", parallel).
		For(&v1alpha1.ApiKey{}, builder.WithPredicates(reconciler.Changes(statusConditions))).
		Watches(&v1alpha1.Merchant{}, reconciler.EnqueueMapped(r.requestsForMerchant), builder.WithPredicates(merchantChanges())).
		Watches(&corev1.ConfigMap{}, reconciler.EnqueueMapped(r.requestsForPublishedMerchant), builder.WithPredicates(publishedStateChanges())).
		Watches(&corev1.Secret{}, reconciler.EnqueueMapped(r.requestsForSecret), builder.WithPredicates(r.rememberVersions(ctx))).
		WatchesRawSource(r.TenantSecrets(mgr, &v1alpha1.ApiKey{})).
		WatchesRawSource(source.Channel(r.Outdated, &handler.TypedEnqueueRequestForObject[*v1alpha1.ApiKey]{})).
		Complete(reconcile.AsReconciler(mgr.GetClient(), driver))
}

// merchantChanges passes creations and deletions of a Merchant. Its keys follow its state when that is published.
func merchantChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}}
}

// publishedStateChanges passes creations and deletions of what is published of a Merchant, and changes of its published state. What a start
// finds is looked at with the ApiKeys.
func publishedStateChanges() predicate.Predicate {
	state := func(object client.Object) v1alpha1.MerchantState {
		if configMap, ok := object.(*corev1.ConfigMap); ok {
			return publishedStateIn(configMap)
		}
		return ""
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
		UpdateFunc: func(e event.UpdateEvent) bool { return state(e.ObjectOld) != state(e.ObjectNew) },
	}
}

func statusConditions(object client.Object) []metav1.Condition {
	if apiKey, ok := object.(*v1alpha1.ApiKey); ok {
		return apiKey.Status.Conditions
	}
	return nil
}
