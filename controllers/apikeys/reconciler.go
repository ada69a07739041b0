package apikeys

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

// Reconciler issues, publishes, delivers and withdraws keys. Every exported field is required.
type Reconciler struct {
	// Client reads through the cache; of Secrets, the cache holds the published ones only.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Secrets are those delivered beside ApiKeys.
	Secrets deliveries.Secrets
	Events  recorder.EventRecorder
	Clock   clock.PassiveClock
	Metrics *Metrics
	// CredentialsNamespace is where published objects live.
	CredentialsNamespace string

	written subject.Versions
}

// Least privilege: ApiKeys are read, and of their metadata only the finalizer is written. In the
// tenants' namespaces, a delivered Secret is created; got, to tell whose it is and to take up or move
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
	if !apiKey.DeletionTimestamp.IsZero() {
		return subject.Settle(r.withdraw(ctx, apiKey))
	}
	if r.written.Behind(apiKey, r.Clock.Now()) {
		return reconcile.Result{RequeueAfter: subject.AfterWrite}, nil
	}
	held, err := subject.Hold(ctx, r.Client, apiKey)
	if err != nil {
		return subject.Settle(err)
	}
	if held {
		r.written.Wrote(apiKey.UID, apiKey.ResourceVersion, r.Clock.Now())
	}
	plan, err := r.plan(ctx, apiKey, held)
	if err == nil {
		plan.facts, err = r.apply(ctx, plan)
	}
	return r.report(ctx, plan, err)
}

// plan decides on what the caches say, which is enough to see that nothing is to be done. What is to
// be written is decided again on what the API server says, so that a cache that is behind neither
// makes nor takes back anything. The first key of an ApiKey that nobody held before is decided on at
// once: its writes are creations, and fail if anything is there already. If its Merchant is not the one
// that the cache knows, another key follows; one made elsewhere cannot be followed by another, so it waits.
func (r *Reconciler) plan(ctx context.Context, apiKey *v1alpha1.ApiKey, held bool) (plan, error) {
	cached, err := r.gather(ctx, apiKey)
	if err != nil {
		return plan{facts: cached}, err
	}
	p := decide(cached)
	p.first = held && p.newKey != nil && p.digest == nil && cached.untouched()
	if p.idle() || p.first {
		return p, nil
	}
	live, err := r.confirm(ctx, cached)
	if err != nil {
		return plan{facts: live}, err
	}
	return decide(live), nil
}
