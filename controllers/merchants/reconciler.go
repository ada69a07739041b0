package merchants

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// Reconciler publishes Merchants, and the signing secrets of their webhooks. Every exported
// field is required.
type Reconciler struct {
	// Client reads through the cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Secrets are the signing secrets delivered beside Merchants.
	Secrets deliveries.Secrets
	Events  recorder.EventRecorder
	Clock   clock.PassiveClock
	// CredentialsNamespace is where published objects live.
	CredentialsNamespace string

	written subject.Versions
}

// Least privilege: the operator reads Merchants, and of their metadata writes the finalizer only. It
// owns the published ConfigMaps and signing secrets; get is for the live look before a write. For the
// delivered Secrets it needs what it needs for those of ApiKeys.
//
// +kubebuilder:rbac:groups=merchant-operator.io,resources=merchants,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=merchant-operator.io,resources=merchants/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update;delete,namespace=merchant-operator-credentials
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete,namespace=merchant-operator-credentials
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings the published ConfigMap, the signing secret and the status in line with the Merchant.
func (r *Reconciler) Reconcile(ctx context.Context, merchant *v1alpha1.Merchant) (reconcile.Result, error) {
	if !merchant.DeletionTimestamp.IsZero() {
		return subject.Settle(r.withdraw(ctx, merchant))
	}
	if r.written.Behind(merchant, r.Clock.Now()) {
		return reconcile.Result{RequeueAfter: subject.AfterWrite}, nil
	}
	held, err := subject.Hold(ctx, r.Client, merchant)
	if err != nil {
		return subject.Settle(err)
	}
	if held {
		r.written.Wrote(merchant.UID, merchant.ResourceVersion, r.Clock.Now())
	}
	plan, err := r.plan(ctx, merchant, held)
	if err == nil {
		plan.facts, err = r.apply(ctx, plan)
	}
	return r.report(ctx, plan, err)
}

// plan decides on what the cache says, which is enough to see that nothing is to be done. What is to
// be written is decided again on what the API server says, so that a cache that is behind, such as
// one of a new leader, takes nothing back. A Merchant that was not held by anybody before can be
// decided on at once: all writes are creations, which what was there before makes fail.
func (r *Reconciler) plan(ctx context.Context, merchant *v1alpha1.Merchant, held bool) (plan, error) {
	cached, err := r.gather(ctx, r.Client, merchant)
	if err != nil {
		return plan{facts: cached}, err
	}
	if p, err := decide(cached); err != nil || p.idle() || held && cached.untouched() {
		return p, err
	}
	live, err := r.confirm(ctx, merchant)
	if err != nil {
		return plan{facts: live}, err
	}
	return decide(live)
}
