// Package merchants publishes Merchants for the data plane: the ConfigMap, and the signing secret of the webhook. It
// repairs both, and deletes them with the Merchant.
package merchants

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/merchant-operator/merchant-operator/controllers/index"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// Reconciler publishes Merchants, and the signing secrets of their webhooks.
type Reconciler struct {
	*reconciler.Base

	// MaxRateLimit is the most that is published, whatever a Merchant asks for.
	MaxRateLimit v1alpha1.RateLimit
}

// Rights: Merchants are read, and only their finalizer and status are written. The operator owns the published
// ConfigMaps and signing secrets; get is for the uncached read before a write. Delivered Secrets need the same rights as
// those of ApiKeys.
//
// +kubebuilder:rbac:groups=merchant-operator.io,resources=merchants,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=merchant-operator.io,resources=merchants/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update;delete,namespace=merchant-operator-credentials
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete,namespace=merchant-operator-credentials
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

// Update plans and applies.
func (r *Reconciler) Update(ctx context.Context, cached facts, created bool) (facts, error) { //nolint:revive // its facts are for reconciler.Driver only
	p, err := r.plan(ctx, cached, created)
	if err != nil {
		return p.facts, err
	}
	return r.apply(ctx, p)
}

// Restriction returns the write that only restricts the Merchant; nil: none is due.
func (r *Reconciler) Restriction(f facts) func(context.Context) error {
	want := restrictedConfigMap(f.configMap, f.merchant)
	if want == nil {
		return nil
	}
	return func(ctx context.Context) error {
		if err := writes.Replace(ctx, r.Client, f.configMap, want); err != nil {
			return fmt.Errorf("restrict ConfigMap %s: %w", client.ObjectKeyFromObject(want), err)
		}
		r.Emit(f.merchant, v1alpha1.ReasonPublished, actionPublish, "Published merchant (state %s)", f.merchant.Spec.State)
		return nil
	}
}

// plan decides from the caches if that is certain: there is nothing to do, or the Merchant is new, because all writes are creations, which
// fail if anything exists. Otherwise it decides again from the API server, so that a late cache, such as that of a new leader, undoes or
// repeats nothing.
func (r *Reconciler) plan(ctx context.Context, cached facts, created bool) (*plan, error) {
	cached, err := r.gather(ctx, r.Cached(), cached)
	if err != nil {
		return &plan{facts: cached}, err
	}
	p, err := decide(cached)
	if err != nil || p.idle() || created && cached.untouched() {
		return p, err
	}
	f, err := r.ReadPublished(ctx, r.Uncached(), cached.merchant)
	if err == nil {
		f, err = r.gather(ctx, r.Uncached(), f)
	}
	if err != nil {
		return &plan{facts: f}, err
	}
	return decide(f)
}

// apply executes the plan, and returns the facts as they are then, also if it fails. The merchant's state comes first, so that nothing
// prevents a suspension. The signing secret is published before it is delivered: if apply ends in between, the next reconciliation writes
// the copy.
func (r *Reconciler) apply(ctx context.Context, p *plan) (facts, error) {
	f := p.facts
	if err := r.publish(ctx, &f, p); err != nil {
		return f, err
	}
	if err := r.sign(ctx, &f, p); err != nil {
		return f, err
	}
	if p.deliver {
		if err := r.deliver(ctx, &f); err != nil {
			return f, err
		}
	}
	return f, r.removeDelivered(ctx, p)
}

// publish writes the ConfigMap of the plan, if any.
func (r *Reconciler) publish(ctx context.Context, f *facts, p *plan) error {
	if p.publish == nil {
		return nil
	}
	if err := writes.Replace(ctx, r.Client, p.configMap, p.publish); err != nil {
		return fmt.Errorf("publish ConfigMap %s: %w", client.ObjectKeyFromObject(p.publish), err)
	}
	logf.FromContext(ctx).Info("published the merchant", "configMap", p.publish.Name)
	r.Emit(p.merchant, v1alpha1.ReasonPublished, actionPublish, "Published merchant (state %s)", p.merchant.Spec.State)
	f.configMap, f.publishedWebhook = p.publish, p.webhook // the next check is at the end of the wait
	r.emitRemoval(ctx, *f, p.publishedWebhook)
	return nil
}

// emitRemoval says that a webhook was just removed, or that its events wait no longer.
func (r *Reconciler) emitRemoval(ctx context.Context, f facts, before *published.Webhook) {
	webhook := f.publishedWebhook
	switch {
	case webhook.Awaited() && !before.Awaited():
		r.Emit(f.merchant, reasonWebhookRemoved, actionPublish,
			"The webhook was removed. Its events wait for another one until %s; then they are dropped", graceEnd(f).Format(time.RFC3339))
	case webhook.Removed() && !webhook.Awaited() && before.Awaited():
		logf.FromContext(ctx).Info("the webhook was removed 24 hours ago; events that waited are dropped")
		r.Warn(f.merchant, reasonWebhookRemoved, actionPublish, "The webhook was removed 24 hours ago: events that waited for another one are dropped")
	}
}

// errStillAccepted: nothing of a deleted Merchant could be changed, so that its keys work as before.
var errStillAccepted = errors.New("the keys of the Merchant still work")

// Revoke ends the Merchant in the credentials namespace, and returns the names of delivered Secrets. Closing the ConfigMap waits for
// nothing; it stays until the tombstone is written, so that an interruption forgets nothing. If closing it is refused, the tombstone and the
// deletion end the Merchant, each of them alone. A Merchant that was never published leaves no tombstone. The facts are from the API server,
// because the cache may be late. A ConfigMap without the operator's label is not changed.
func (r *Reconciler) Revoke(ctx context.Context, merchant *v1alpha1.Merchant) ([]string, error) {
	f := r.newFacts(merchant)
	if err := r.readConfigMap(ctx, r.APIReader, &f); err != nil {
		return nil, err
	}
	err := r.end(ctx, &f)
	return f.secretNames(), err
}

// end ends what is published of the Merchant. It reads nothing in the tenant's namespace, whose Secrets are as large as the tenant makes them.
func (r *Reconciler) end(ctx context.Context, f *facts) error {
	if f.configMap != nil && f.configMap.Labels[published.Label] != published.LabelMerchant {
		f.configMap = nil
	}
	var unclosed, unremembered error
	if f.configMap != nil {
		if unclosed = writes.CloseMerchant(ctx, r.Client, f.configMap); reconciler.Superseded(unclosed) {
			return unclosed
		}
	}
	delivered, unlisted := r.Secrets.List(ctx, f.merchant)
	f.delivered = delivered
	unread := errors.Join(r.readSigning(ctx, r.APIReader, f), unlisted)
	if f.configMap != nil || f.signing != nil || len(f.delivered) > 0 {
		unremembered = r.WriteTombstone(ctx, published.TombstoneMerchant, f.merchant, "")
	}
	if unclosed == nil && unremembered != nil {
		return unremembered
	}
	if f.configMap != nil {
		undeleted := client.IgnoreNotFound(r.Client.Delete(ctx, f.configMap, client.Preconditions{UID: &f.configMap.UID}))
		if undeleted != nil && unclosed != nil && unremembered != nil {
			return fmt.Errorf("%w: %w", errStillAccepted, errors.Join(unclosed, unremembered, undeleted))
		}
		if undeleted != nil {
			return fmt.Errorf("delete ConfigMap %s: %w", client.ObjectKeyFromObject(f.configMap), undeleted)
		}
	}
	return errors.Join(unread, unremembered, r.withdrawSigning(ctx, f))
}

// parallel is the number of concurrent reconciliations, which mostly wait for the API server. The objects of one namespace have a quarter.
const parallel = 16

// SetupWithManager registers the controller with its index and watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	if err := index.Merchants.Add(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	driver := reconciler.Driver[*v1alpha1.Merchant, facts]{Base: r.Base, Kind: r, Tombstone: published.TombstoneMerchant}
	err := reconciler.NewRestrictionController(mgr, "merchant-restriction", reconciler.RequestNamespace).
		For(&v1alpha1.Merchant{}, builder.WithPredicates(reconciler.Changes(statusConditions))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.requestsForPublished)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), reconciler.Restrictions[*v1alpha1.Merchant, facts]{Driver: driver}))
	if err != nil {
		return err
	}
	return reconciler.NewTenantController(mgr, "merchant", parallel).
		For(&v1alpha1.Merchant{}, builder.WithPredicates(predicate.Or(reconciler.Changes(statusConditions), webhookTested))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.requestsForPublished)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.requestsForPublished)).
		WatchesRawSource(r.TenantSecrets(mgr, &v1alpha1.Merchant{})).
		Complete(reconcile.AsReconciler(mgr.GetClient(), driver))
}

// requestsForPublished returns the Merchant of the published object.
func (r *Reconciler) requestsForPublished(ctx context.Context, object client.Object) []reconcile.Request {
	return reconciler.Sources(ctx, r.Client, index.Merchants, object.GetName())
}

// webhookTested passes the dispatcher's report that it has queued a test, after which the trigger is published no more.
var webhookTested = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return observedTestTrigger(e.ObjectOld) != observedTestTrigger(e.ObjectNew)
}}

func observedTestTrigger(object client.Object) string {
	if merchant, ok := object.(*v1alpha1.Merchant); ok && merchant.Status.Webhook != nil {
		return merchant.Status.Webhook.ObservedTestTrigger
	}
	return ""
}

func statusConditions(object client.Object) []metav1.Condition {
	if merchant, ok := object.(*v1alpha1.Merchant); ok {
		return ownConditions(merchant.Status.Conditions)
	}
	return nil
}
