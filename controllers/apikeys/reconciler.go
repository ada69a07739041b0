// Package apikeys owns the life of an API key in the cluster: when a new one is issued, how it reaches
// the tenant and the data plane in an order that no crash can break, and how it ends.
//
// A pass gathers facts, decides on them (decide is pure), and applies the plan. The published record
// is the truth about a key; docs/design/operator.md says why and what follows from it.
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

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// Reconciler issues, publishes, delivers and withdraws keys. Every exported field is required.
type Reconciler struct {
	*reconciler.Base
	Metrics *Metrics
}

// Least privilege: ApiKeys are read, and of their metadata only the finalizer is written. In the
// tenants' namespaces, a delivered Secret is created; got, to see whose it is and to take up or move
// an undelivered key; updated by a rotation; listed and watched, as metadata, to be put right; and
// deleted when its key is no more. RBAC cannot narrow that to the operator's own Secrets.
//
// +kubebuilder:rbac:groups=merchant-operator.io,resources=apikeys,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=merchant-operator.io,resources=apikeys/status,verbs=patch
// +kubebuilder:rbac:groups=merchant-operator.io,resources=merchants,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete,namespace=merchant-operator-credentials
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings the published record, the delivered Secret and the status in line with the ApiKey.
func (r *Reconciler) Reconcile(ctx context.Context, apiKey *v1alpha1.ApiKey) (reconcile.Result, error) {
	return reconciler.Reconcile(ctx, r.Base, apiKey, reconciler.Steps[*v1alpha1.ApiKey, *plan]{
		Plan:     r.plan,
		Confirm:  r.confirm,
		Apply:    r.apply,
		Report:   r.report,
		Withdraw: r.withdraw,
	})
}

// plan decides on what the caches say. It is certain about the first key of an ApiKey that no operator held before: its
// writes are creations, which fail if anything is there. If its Merchant is not the one that the cache knows, another key
// follows; an externally generated one cannot be followed by another, so it is confirmed.
func (r *Reconciler) plan(ctx context.Context, apiKey *v1alpha1.ApiKey, added bool) (p *plan, certain bool, err error) {
	cached, err := r.gather(ctx, apiKey)
	if err != nil {
		cached.incomplete = true
		return &plan{facts: cached}, false, err
	}
	p = decide(cached)
	p.first = added && p.newKey != nil && p.digest == nil && cached.untouched()
	return p, p.idle() || p.first, nil
}

// confirm decides on what the API server says.
func (r *Reconciler) confirm(ctx context.Context, apiKey *v1alpha1.ApiKey) (*plan, error) {
	live, err := r.gatherLive(ctx, apiKey)
	if err != nil {
		live.incomplete = true
		return &plan{facts: live}, err
	}
	return decide(live), nil
}

// apply does what the plan says. After a new key nothing else is to be done in this pass.
func (r *Reconciler) apply(ctx context.Context, p *plan) error {
	if err := r.writeClaims(ctx, p.facts, p.claims); err != nil {
		return err
	}
	if p.newKey != nil {
		return r.issue(ctx, p)
	}
	if p.repair != nil {
		if err := r.publish(ctx, p.published, *p.repair); err != nil {
			return err
		}
		p.record = p.repair
		r.Emit(p.apiKey, v1alpha1.ReasonPublished, actionPublish, "Published key (state %s)", p.record.State)
	}
	for _, w := range p.warnings {
		if w.reason == reasonKeyLost {
			r.Metrics.lost.Inc()
		}
		r.Warn(p.apiKey, w.reason, actionDeliver, "%s", w.text)
	}
	if p.move != nil {
		if err := r.move(ctx, p); err != nil {
			return err
		}
	}
	return r.removeDelivered(ctx, p, p.remove)
}

// withdraw ends an ApiKey: first its tombstone, then the published Secret, after which the key is dead,
// then what was delivered. The API server is asked, for the cache may be behind.
func (r *Reconciler) withdraw(ctx context.Context, apiKey *v1alpha1.ApiKey) error {
	f, err := r.read(ctx, r.Live, apiKey)
	if err != nil {
		return err
	}
	if err := r.WriteTombstone(ctx, published.TombstoneApiKey, apiKey); err != nil {
		return err
	}
	if f.published != nil && !f.recordOfAnother() {
		// Whatever a rotation over HTTP makes of it meanwhile, it goes.
		if err := r.Secrets.Delete(ctx, f.published, client.Preconditions{UID: &f.published.UID}); err != nil {
			return err
		}
	}
	cached, err := r.cachedDelivered(ctx, apiKey)
	if err != nil {
		return err
	}
	return r.Secrets.DeleteOwned(ctx, apiKey, f.secretNames(cached))
}

// parallel is how many ApiKeys are worked on at a time; each pass mostly waits for the API server.
const parallel = 8

// SetupWithManager registers the controller with its indexes and watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("apikey").
		For(&v1alpha1.ApiKey{}, builder.WithPredicates(reconciler.Changes(conditionsOf))).
		Watches(&v1alpha1.Merchant{}, handler.EnqueueRequestsFromMapFunc(r.keysOf), builder.WithPredicates(merchantChanges())).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.keyOf)).
		WatchesRawSource(r.TenantSecrets(mgr, &v1alpha1.ApiKey{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// merchantChanges lets pass what a key needs to know of its Merchant: that it exists, or is being deleted, and its state.
func merchantChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() ||
			stateOf(e.ObjectOld) != stateOf(e.ObjectNew)
	}}
}

func stateOf(object client.Object) v1alpha1.MerchantState {
	if merchant, ok := object.(*v1alpha1.Merchant); ok {
		return merchant.Spec.State
	}
	return ""
}

func conditionsOf(object client.Object) []metav1.Condition {
	if apiKey, ok := object.(*v1alpha1.ApiKey); ok {
		return apiKey.Status.Conditions
	}
	return nil
}
