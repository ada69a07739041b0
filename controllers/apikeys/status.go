package apikeys

import (
	"context"
	"maps"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
)

// Reasons of events that are not reasons of conditions.
const (
	reasonRotated        = "Rotated"
	reasonKeyLost        = "KeyLost"
	reasonRecordRestored = "RecordRestored"
	reasonStaleDelivery  = "StaleDeliveryRemoved"
	reasonDeliveryMoved  = "DeliveryMoved"
	reasonDeliveryEnded  = "DeliveryEnded"
	reasonTriggerIgnored = "TriggerIgnored"
)

// The actions of events.
const (
	actionIssue   = "Issue"
	actionPublish = "Publish"
	actionDeliver = "Deliver"
)

// report emits events for changes, and writes the status if it changed.
func (r *Reconciler) report(ctx context.Context, p *plan, failure error) (time.Duration, error) {
	if failure != nil {
		p.outcome = conditions.Failed(failure)
	}
	if !p.outcome.IsReady() && p.outcome.Differs(p.apiKey.Status.Conditions) {
		r.Warn(p.apiKey, p.outcome.Reason, actionPublish, "%s", p.outcome.Message)
	}
	for _, u := range newUpcoming(p.facts) {
		r.Warn(p.apiKey, u.condition, actionPublish, "%s", u.message())
	}
	return nextCheck(p.facts, p.outcome), r.writeStatus(ctx, p.apiKey, statusOf(p.facts, p.outcome))
}

// statusOf is pure. It rebuilds the status from the record. Without a record it keeps the last status, because the
// generation in it must not be lost.
func statusOf(f facts, outcome conditions.Outcome) v1alpha1.ApiKeyStatus {
	status := *f.apiKey.Status.DeepCopy()
	status.ObservedGeneration = f.apiKey.Generation
	status.KeyID = published.ID(f.apiKey.UID)
	status.Conditions = conditionsFor(f, outcome)
	if f.incomplete {
		return status
	}
	status.NextRotationTime = nil
	if next, scheduled := nextRotation(f); scheduled {
		status.NextRotationTime = &metav1.Time{Time: next}
	}
	if !f.newer {
		status.PreviousKeys = nil
	}
	if record, known := f.ownRecord(); known {
		status.Prefix = record.Current.Prefix
		status.KeyGeneration = max(status.KeyGeneration, record.Generation)
		status.ObservedTrigger = record.HandledTrigger
		status.LastRotation = &v1alpha1.RotationStatus{
			Time:  metav1.NewTime(record.LastRotation.Time.Truncate(time.Second)), // what a status can hold
			Cause: record.LastRotation.Cause,
			Actor: record.LastRotation.Actor,
		}
		for _, previous := range record.PreviousAt(f.now) {
			end := metav1.NewTime(previous.ValidUntil.Truncate(time.Second))
			status.PreviousKeys = append(status.PreviousKeys, v1alpha1.PreviousKey{Prefix: previous.Prefix, ValidUntil: end})
		}
	}
	return status
}

// conditionsFor returns what the status has of conditions, brought up to date.
func conditionsFor(f facts, outcome conditions.Outcome) []metav1.Condition {
	existing := slices.Clone(f.apiKey.Status.Conditions)
	waited := meta.FindStatusCondition(existing, v1alpha1.ReconcilingCondition)
	if waited != nil && outcome.Reason == v1alpha1.ReasonMerchantNotFound && waited.Reason != outcome.Reason {
		// The time of the condition is since when the Merchant is missed, not since when anything failed.
		meta.RemoveStatusCondition(&existing, v1alpha1.ReconcilingCondition)
	}
	all := outcome.Conditions(existing, f.apiKey.Generation, f.now)
	if f.incomplete {
		for i := range all {
			all[i].ObservedGeneration = f.apiKey.Generation
		}
		return all
	}
	wanted := map[string]*metav1.Condition{v1alpha1.DeliveredCondition: delivery(f), v1alpha1.KeyLostCondition: keyLost(f)}
	for _, u := range upcomingFor(f) {
		wanted[u.condition] = u.conditionOf(f)
	}
	for _, kind := range slices.Sorted(maps.Keys(wanted)) {
		if wanted[kind] == nil {
			meta.RemoveStatusCondition(&all, kind)
			continue
		}
		wanted[kind].ObservedGeneration = f.apiKey.Generation
		all = conditions.With(all, *wanted[kind], f.now)
	}
	return all
}

func (r *Reconciler) writeStatus(ctx context.Context, apiKey *v1alpha1.ApiKey, want v1alpha1.ApiKeyStatus) error {
	if apiequality.Semantic.DeepEqual(want, apiKey.Status) {
		return nil
	}
	apply := v1alpha1ac.ApiKey(apiKey.Name, apiKey.Namespace).WithResourceVersion(apiKey.ResourceVersion).WithStatus(applied(want))
	return r.ApplyStatus(ctx, apiKey, apply, func() *string { return apply.ResourceVersion })
}

// applied is the status in the form of server-side apply, which names only what is set.
func applied(status v1alpha1.ApiKeyStatus) *v1alpha1ac.ApiKeyStatusApplyConfiguration {
	apply := v1alpha1ac.ApiKeyStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithKeyID(status.KeyID).
		WithConditions(conditions.ApplyConfigurations(status.Conditions)...)
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
		last := v1alpha1ac.RotationStatus().WithTime(status.LastRotation.Time).WithCause(status.LastRotation.Cause)
		if status.LastRotation.Actor != "" {
			last.WithActor(status.LastRotation.Actor)
		}
		apply.WithLastRotation(last)
	}
	for _, previous := range status.PreviousKeys {
		key := v1alpha1ac.PreviousKey().WithValidUntil(previous.ValidUntil)
		if previous.Prefix != "" {
			key.WithPrefix(previous.Prefix)
		}
		apply.WithPreviousKeys(key)
	}
	if status.NextRotationTime != nil {
		apply.WithNextRotationTime(*status.NextRotationTime)
	}
	return apply
}
