package apikeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// report ends a pass: one status write, if anything changed, an event if it is news, and when to look
// again.
func (r *Reconciler) report(ctx context.Context, p plan, failure error) (reconcile.Result, error) {
	if errors.Is(failure, subject.ErrGone) || subject.LostRace(failure) {
		return subject.Settle(failure)
	}
	if failure != nil {
		p.outcome = subject.Failed(failure)
	}
	if !p.outcome.IsReady() && p.outcome.News(p.apiKey.Status.Conditions) {
		r.warn(p.apiKey, p.outcome.Reason, actionPublish, "%s", p.outcome.Message)
	}
	for _, n := range newNotices(p.facts) {
		r.warn(p.apiKey, n.condition, actionPublish, "%s", n.message())
	}
	if err := errors.Join(failure, r.writeStatus(ctx, p.apiKey, statusOf(p.facts, p.outcome))); err != nil {
		return subject.Settle(err)
	}
	if next := nextLook(p.facts, p.outcome); !next.IsZero() {
		return reconcile.Result{RequeueAfter: next.Sub(p.now)}, nil
	}
	return reconcile.Result{}, nil
}

// statusOf is pure. The status of a key is rebuilt from its record each time; while there is none,
// what was said last stays, for the generation in it must not be forgotten.
func statusOf(f facts, outcome subject.Outcome) v1alpha1.ApiKeyStatus {
	status := *f.apiKey.Status.DeepCopy()
	status.ObservedGeneration = f.apiKey.Generation
	status.KeyID = published.ID(f.apiKey.UID)
	status.Conditions = withNotices(outcome.Conditions(status.Conditions, f.apiKey.Generation, f.now), f)
	status.NextRotationTime = nil
	if next, scheduled := nextRotation(f); scheduled {
		status.NextRotationTime = &metav1.Time{Time: next}
	}
	if record, known := f.ownRecord(); known {
		status.Prefix = record.Current.Prefix
		status.KeyGeneration = max(status.KeyGeneration, record.Generation)
		status.ObservedTrigger = record.HandledTrigger
		status.LastRotation = &v1alpha1.RotationStatus{
			Time:  metav1.NewTime(record.LastRotation.Time.Truncate(time.Second)), // what a status can hold
			Cause: record.LastRotation.Cause,
		}
	}
	return status
}

func (r *Reconciler) writeStatus(ctx context.Context, apiKey *v1alpha1.ApiKey, want v1alpha1.ApiKeyStatus) error {
	if apiequality.Semantic.DeepEqual(want, apiKey.Status) {
		return nil
	}
	// The version keeps the status from what this pass has not seen: a newer spec, or another object of
	// the same name. (The API server ignores a UID in what is applied to a status.)
	apply := v1alpha1ac.ApiKey(apiKey.Name, apiKey.Namespace).WithResourceVersion(apiKey.ResourceVersion).WithStatus(applied(want))
	err := r.Client.Status().Apply(ctx, apply, client.ForceOwnership, client.FieldOwner(subject.FieldOwner))
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	if apply.ResourceVersion != nil { // the answer is decoded into what was applied
		r.written.Wrote(apiKey.UID, *apply.ResourceVersion, r.Clock.Now())
	}
	return nil
}

// applied is the status in the form of server-side apply, which names only what is set.
func applied(status v1alpha1.ApiKeyStatus) *v1alpha1ac.ApiKeyStatusApplyConfiguration {
	apply := v1alpha1ac.ApiKeyStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithKeyID(status.KeyID).
		WithConditions(subject.Apply(status.Conditions)...)
	if status.KeyGeneration > 0 {
		apply.WithKeyGeneration(status.KeyGeneration)
	}
	if status.Prefix != "" {
		apply.WithPrefix(status.Prefix)
	}
	if status.ObservedTrigger != "" {
		apply.WithObservedTrigger(status.ObservedTrigger)
	}
	if status.LastRotation != nil {
		apply.WithLastRotation(v1alpha1ac.RotationStatus().WithTime(status.LastRotation.Time).WithCause(status.LastRotation.Cause))
	}
	if status.NextRotationTime != nil {
		apply.WithNextRotationTime(*status.NextRotationTime)
	}
	return apply
}
