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

// Reconcile updates the published ConfigMap, the signing secret and the status of the Merchant.
func (r *Reconciler) Reconcile(ctx context.Context, merchant *v1alpha1.Merchant) (reconcile.Result, error) {
	if !merchant.DeletionTimestamp.IsZero() {
		return r.withdraw(ctx, merchant)
	}
	// Nothing that a tenant can make fail, such as a delivery, a quota, an admission policy or the finalizer, delays what only restricts.
	again, err := r.restrict(ctx, merchant)
	if err != nil {
		return reconciler.Finish(r.reportStillAccepted(ctx, merchant, err))
	}
	if again {
		return reconcile.Result{RequeueAfter: reconciler.AfterWrite}, nil
	}
	if wait := r.Wait(merchant); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	// A finalizer that cannot be added delays nothing, such as a key to disable: a deletion is noticed without it.
	added, unfinalized := r.AddFinalizer(ctx, merchant)
	p, err := r.plan(ctx, merchant, added)
	f := p.facts
	if err == nil {
		f, err = r.apply(ctx, p)
	}
	next, err := r.report(ctx, f, errors.Join(err, unfinalized))
	return r.Finish(merchant, next, err)
}

// publishRestriction publishes what only restricts the Merchant, and nothing else: it is Active no longer, its keys are accepted from fewer
// addresses, or its allowlist is enforced. From the API server it reads what is published first, and then the Merchant: a write replaces the
// version that was read. So a process that is frozen in between publishes nothing of a spec that is older than what another operator has
// published meanwhile.
func (r *Reconciler) publishRestriction(ctx context.Context, cached *v1alpha1.Merchant) (bool, error) {
	configMap, err := r.publishedConfigMap(ctx, r.Client, cached)
	if err != nil || restrictedConfigMap(configMap, cached) == nil {
		return false, err
	}
	if configMap, err = r.publishedConfigMap(ctx, r.APIReader, cached); err != nil {
		return false, err
	}
	current, err := reconciler.ReadUncached(ctx, r.Base, cached)
	if err != nil {
		return false, err
	}
	want := restrictedConfigMap(configMap, current)
	if want == nil {
		return false, nil
	}
	if err := writes.Replace(ctx, r.Client, configMap, want); err != nil {
		return false, fmt.Errorf("restrict ConfigMap %s: %w", client.ObjectKeyFromObject(want), err)
	}
	r.Emit(current, v1alpha1.ReasonPublished, actionPublish, "Published merchant (state %s)", current.Spec.State)
	return true, nil
}

// publishedConfigMap returns what is published of the Merchant; nil: nothing.
func (r *Reconciler) publishedConfigMap(ctx context.Context, from client.Reader, merchant *v1alpha1.Merchant) (*corev1.ConfigMap, error) {
	return read(ctx, from, r.CredentialsNamespace, published.MerchantName(published.ID(merchant.UID)), new(corev1.ConfigMap))
}

// plan decides from the caches if that is certain: there is nothing to do, or the Merchant is new, because all writes are creations, which
// fail if anything exists. Otherwise it decides again from the API server, so that a late cache, such as that of a new leader, undoes or
// repeats nothing.
func (r *Reconciler) plan(ctx context.Context, merchant *v1alpha1.Merchant, added bool) (*plan, error) {
	cached, err := r.gather(ctx, r.Client, merchant)
	if err != nil {
		return &plan{facts: cached}, err
	}
	p, err := decide(cached)
	if err != nil || p.idle() || added && cached.untouched() {
		return p, err
	}
	current, err := reconciler.ReadUncached(ctx, r.Base, merchant)
	if err != nil {
		return p, err
	}
	f, err := r.gatherUncached(ctx, current)
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

// withdraw closes the published merchant, so that its keys are refused, remembers the Merchant in a tombstone, without which its events
// would be kept, and then deletes the ConfigMap, the signing secret and the copy. It does not ask for the finalizer first: its tenant may
// have removed it. What is in the tenant's namespace may fail for long, and then waits longer than the rest does.
func (r *Reconciler) withdraw(ctx context.Context, merchant *v1alpha1.Merchant) (reconcile.Result, error) {
	restricting, release, ok := r.Restrict(ctx, merchant)
	if !ok {
		return reconcile.Result{RequeueAfter: reconciler.AfterWrite}, nil
	}
	f, err := r.revoke(restricting, merchant)
	release()
	if err != nil {
		return reconciler.Finish(r.reportUnrevoked(ctx, merchant, err))
	}
	if wait := r.Wait(merchant); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	more, err := r.Secrets.DeleteOwned(ctx, merchant, f.secretNames())
	if more {
		return r.Finish(merchant, reconciler.AfterWrite, err)
	}
	var held bool
	if err == nil {
		held, err = r.Release(ctx, published.TombstoneMerchant, merchant)
	}
	if held {
		return r.Finish(merchant, reconciler.HeldRecheck, r.reportDeletion(ctx, merchant, reconciler.Held("The Merchant")))
	}
	return r.Finish(merchant, 0, err)
}

// errStillAccepted: nothing of a deleted Merchant could be changed, so that its keys work as before.
var errStillAccepted = errors.New("the keys of the Merchant still work")

// revoke ends the Merchant in the credentials namespace. The ConfigMap stays until the tombstone is written, so that an interruption forgets
// nothing. If closing it is refused, the tombstone and the deletion end the Merchant, each of them alone. A Merchant that was never published
// leaves no tombstone. The facts are from the API server, because the cache may be late. A ConfigMap without the operator's label is not
// changed.
func (r *Reconciler) revoke(ctx context.Context, merchant *v1alpha1.Merchant) (facts, error) {
	f, err := r.gatherPublished(ctx, r.APIReader, merchant)
	if err != nil {
		return f, err
	}
	err = r.end(ctx, &f)
	return f, err
}

// end ends what is published of the Merchant.
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
	return errors.Join(unremembered, r.withdrawSigning(ctx, f))
}

// parallel is the number of concurrent reconciliations, which mostly wait for the API server. The objects of one namespace have a quarter.
const parallel = 16

// SetupWithManager registers the controller with its index and watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	if err := index.Merchants.Add(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := r.setUpRestrictions(mgr); err != nil {
		return err
	}
	return reconciler.NewTenantController(mgr, "merchant", parallel).
		For(&v1alpha1.Merchant{}, builder.WithPredicates(predicate.Or(reconciler.Changes(statusConditions), webhookTested))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.requestsForPublished)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.requestsForPublished)).
		WatchesRawSource(r.TenantSecrets(mgr, &v1alpha1.Merchant{})).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
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
