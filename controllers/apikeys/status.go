package apikeys

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
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

// report emits events for changes, and writes the status if it changed. It returns the time until the next
// check is due, and the failure with its own.
func (r *Reconciler) report(ctx context.Context, f facts, failure error) (time.Duration, error) {
	if reconciler.Superseded(failure) {
		return 0, failure
	}
	outcome := outcomeFor(f)
	if failure != nil {
		outcome = conditions.Failed(failure)
	}
	r.warn(f, outcome)
	if !f.incomplete {
		r.Metrics.overlapsEnd(f.apiKey.UID, endings(f))
	}
	r.auditExpiry(ctx, f, outcome)
	return nextCheck(f, outcome), errors.Join(failure, r.writeStatus(ctx, f.apiKey, newStatus(f, outcome)))
}

// reportDeletion says why a deleted ApiKey is still there, and whether its key is accepted. It warns of it, and writes the status if it changed.
func (r *Reconciler) reportDeletion(ctx context.Context, apiKey *v1alpha1.ApiKey, outcome conditions.Outcome, usable metav1.ConditionStatus) error {
	if !r.Warned(apiKey, apiKey.Status.Conditions).Has(outcome.Abnormal(), outcome.Reason) {
		r.Warn(apiKey, outcome.Reason, actionPublish, "%s", outcome.Message)
	}
	r.NoteWarned(apiKey, reconciler.Warned{outcome.Abnormal(): outcome.Reason})
	status := *apiKey.Status.DeepCopy()
	status.ObservedGeneration = apiKey.Generation
	now := r.Clock.Now().UTC()
	status.Conditions = conditions.With(outcome.Alone(status.Conditions, apiKey.Generation, now), metav1.Condition{
		Type: v1alpha1.UsableCondition, Status: usable, Reason: outcome.Reason, Message: outcome.Message,
		ObservedGeneration: apiKey.Generation,
	}, now)
	return r.writeStatus(ctx, apiKey, status)
}

// reportStillAccepted says that the key is not restricted as the spec says. It returns the failure with its own.
func (r *Reconciler) reportStillAccepted(ctx context.Context, f facts, failure error) error {
	if reconciler.Superseded(failure) {
		return failure
	}
	f.incomplete = true
	outcome := conditions.Stalled(v1alpha1.ReasonStillAccepted,
		"A restriction of the spec is not in force, and the key still works as before: %v. The operator retries", failure)
	r.warn(f, outcome)
	return errors.Join(failure, r.writeStatus(ctx, f.apiKey, newStatus(f, outcome)))
}

// reportUnrevoked says what a deletion waits for. It returns the failure with its own.
func (r *Reconciler) reportUnrevoked(ctx context.Context, apiKey *v1alpha1.ApiKey, failure error) error {
	if reconciler.Superseded(failure) {
		return failure
	}
	outcome, usable := conditions.Failed(failure), metav1.ConditionUnknown
	if errors.Is(failure, errStillAccepted) {
		usable = metav1.ConditionTrue
		outcome = conditions.Stalled(v1alpha1.ReasonStillAccepted, "The deletion is not in force: %v. The operator retries", failure)
	}
	return errors.Join(failure, r.reportDeletion(ctx, apiKey, outcome, usable))
}

// warn emits the warnings that do not stand yet, and remembers which ones stand now. emitWarnings has emitted those of the plan.
func (r *Reconciler) warn(f facts, outcome conditions.Outcome) {
	standing := reconciler.Warned{}
	warn := func(condition, conditionReason, reason, text string) {
		standing[condition] = conditionReason
		if !f.warned.Has(condition, conditionReason) {
			r.Warn(f.apiKey, reason, actionPublish, "%s", text)
		}
	}
	if f.incomplete { // nothing that was not read has ended
		maps.Copy(standing, f.warned)
		delete(standing, v1alpha1.ReconcilingCondition)
		delete(standing, v1alpha1.StalledCondition)
	} else {
		for _, u := range upcomingFor(f) {
			if u.reported(f.now) {
				warn(u.condition, u.reason, u.condition, u.message())
			}
		}
		if c := oldKeyInUse(f); c != nil && c.Reason == v1alpha1.ReasonOverlapEndsSoon {
			warn(c.Type, c.Reason, c.Reason, c.Message)
		}
		for _, c := range []*metav1.Condition{delivery(f), keyLost(f)} {
			if c != nil && f.warned.Has(c.Type, c.Reason) {
				standing[c.Type] = c.Reason
			}
		}
	}
	switch use := usable(f, outcome); {
	case outcome.Reason == v1alpha1.ReasonMerchantNotPublished: // the Merchant has the warning, if that lasts
	case !outcome.IsReady():
		warn(outcome.Abnormal(), outcome.Reason, outcome.Reason, outcome.Message)
	case use.Status == metav1.ConditionFalse && use.Reason != v1alpha1.ReasonNotIssued:
		warn(use.Type, use.Reason, use.Reason, use.Message)
	}
	r.NoteWarned(f.apiKey, standing)
}

// newStatus is pure. It rebuilds the status from the record. Without a record it keeps the last status, which tells
// a lost key from a first one.
func newStatus(f facts, outcome conditions.Outcome) v1alpha1.ApiKeyStatus {
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
		status.KeyGeneration = record.Generation
		status.ObservedTrigger = record.HandledTrigger
		status.LastRotation = reportedRotation(record)
		status.LastUsedTime = shownUse(f.uses.Uses, record.Current.Digest, f.apiKey.Status.LastUsedTime, currentUseStep)
		for _, previous := range record.PreviousAt(f.now) {
			key := v1alpha1.PreviousKey{Prefix: previous.Prefix, ValidUntil: metav1.NewTime(previous.ValidUntil.Truncate(time.Second))}
			key.LastUsedTime = shownUse(f.uses.Uses, previous.Digest, shownBefore(f.apiKey.Status, key), oldUseStep)
			status.PreviousKeys = append(status.PreviousKeys, key)
		}
	}
	return status
}

func reportedRotation(record published.KeyRecord) *v1alpha1.RotationStatus {
	return &v1alpha1.RotationStatus{
		Time:  metav1.NewTime(record.LastRotation.Time.Truncate(time.Second)), // what a status can hold
		Cause: record.LastRotation.Cause,
		Actor: record.LastRotation.Actor,
	}
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
	use := usable(f, outcome)
	use.ObservedGeneration = f.apiKey.Generation
	all = conditions.With(all, use, f.now)
	if f.incomplete {
		for i := range all {
			all[i].ObservedGeneration = f.apiKey.Generation
		}
		return all
	}
	desired := map[string]*metav1.Condition{
		v1alpha1.DeliveredCondition: delivery(f), v1alpha1.KeyLostCondition: keyLost(f), v1alpha1.OldKeyInUseCondition: oldKeyInUse(f),
	}
	for _, u := range upcomingFor(f) {
		desired[u.condition] = u.newCondition(f)
	}
	for _, kind := range slices.Sorted(maps.Keys(desired)) {
		if desired[kind] == nil {
			meta.RemoveStatusCondition(&all, kind)
			continue
		}
		desired[kind].ObservedGeneration = f.apiKey.Generation
		all = conditions.With(all, *desired[kind], f.now)
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
		if previous.LastUsedTime != nil {
			key.WithLastUsedTime(*previous.LastUsedTime)
		}
		apply.WithPreviousKeys(key)
	}
	if status.LastUsedTime != nil {
		apply.WithLastUsedTime(*status.LastUsedTime)
	}
	if status.NextRotationTime != nil {
		apply.WithNextRotationTime(*status.NextRotationTime)
	}
	return apply
}

// warning is an event for a problem that Ready does not report. condition has it, if there is one; others are emitted once because the record
// says that they were.
type warning struct {
	reason, text string
	condition    *metav1.Condition
}

// warningsFor returns the warnings that do not stand yet. Each is emitted once; facts from a cache are confirmed before.
func warningsFor(f facts, blocked bool) []warning {
	var warnings []warning
	if !blocked && f.digest != nil && triggerWithoutEffect(f) {
		warnings = append(warnings, warning{reason: reasonTriggerIgnored,
			text: "rotation.trigger is ignored for an externally generated key; change spec.keyDigest to replace it"})
	}
	if c := delivery(f); c != nil && c.Reason == v1alpha1.ReasonNotDelivered && !f.warned.Has(c.Type, c.Reason) {
		warnings = append(warnings, warning{c.Reason, c.Message, c})
	}
	if c := keyLost(f); c != nil && c.Reason == v1alpha1.ReasonKeyNotReplaced && !f.warned.Has(c.Type, c.Reason) {
		warnings = append(warnings, warning{reasonKeyLost, c.Message, c})
	}
	return warnings
}

// emitWarnings emits the warnings of a plan, and returns those that stand then. They are remembered at once, because what follows may lose a
// race.
func (r *Reconciler) emitWarnings(f facts, warnings []warning) reconciler.Warned {
	if len(warnings) == 0 {
		return f.warned
	}
	standing := maps.Clone(f.warned)
	for _, w := range warnings {
		if w.reason == reasonKeyLost {
			r.Metrics.lost.Inc()
		}
		r.Warn(f.apiKey, w.reason, actionDeliver, "%s", w.text)
		if w.condition != nil {
			standing[w.condition.Type] = w.condition.Reason
		}
	}
	r.NoteWarned(f.apiKey, standing)
	return standing
}

// triggerWithoutEffect reports whether the trigger changed and rotates nothing: only another digest replaces an
// externally generated key. With delivery.policy None it was removed, because the CRD does not allow one.
func triggerWithoutEffect(f facts) bool {
	record, known := f.ownRecord()
	return known && f.target() == "" && sameDigest(f.digest, record.HandledDigest) &&
		f.apiKey.Spec.Rotation.Trigger != record.HandledTrigger
}

const (
	// expiryAhead is how long before its expiry a key gets ExpiringSoon.
	expiryAhead = 7 * 24 * time.Hour
	// rotationAhead is how long before a scheduled rotation a key gets RotatingSoon; a tenth of the interval, if that
	// is less.
	rotationAhead = 24 * time.Hour
)

// upcoming is an event ahead of the key, reported by a condition that exists only while it is true.
type upcoming struct {
	condition, reason string
	at                time.Time // zero: never
	ahead             time.Duration
	text              string // with a place for the time
}

// upcomingFor returns the upcoming events, also those that are not to be reported yet.
func upcomingFor(f facts) []upcoming {
	end := expiry(f)
	if !f.now.Before(end) {
		end = time.Time{} // Ready says so
	}
	every := seconds(f.apiKey.Spec.Rotation.EverySeconds)
	rotation, _ := nextRotation(f)
	return []upcoming{
		{v1alpha1.ExpiringSoonCondition, v1alpha1.ReasonExpiresAt, end, expiryAhead, "The key expires at %s"},
		{v1alpha1.RotatingSoonCondition, v1alpha1.ReasonSchedule, rotation, min(rotationAhead, every/10), "The key will be rotated at %s"},
	}
}

// starts is when it is reported; zero: never.
func (u upcoming) starts() time.Time {
	if u.at.IsZero() {
		return time.Time{}
	}
	return u.at.Add(-u.ahead)
}

func (u upcoming) reported(now time.Time) bool { return !u.at.IsZero() && !now.Before(u.starts()) }

func (u upcoming) message() string { return fmt.Sprintf(u.text, u.at.Format(time.RFC3339)) }

// newCondition returns the condition that reports it; nil: it is not time to.
func (u upcoming) newCondition(f facts) *metav1.Condition {
	if !u.reported(f.now) {
		return nil
	}
	return &metav1.Condition{Type: u.condition, Status: metav1.ConditionTrue, Reason: u.reason, Message: u.message()}
}
