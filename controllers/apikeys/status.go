package apikeys

import (
	"context"
	"errors"
	"fmt"
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

// Report emits the warnings, metrics and the audit line of an expiry, and writes the status if it changed. It returns the time until the next check
// is due.
func (r *Reconciler) Report(ctx context.Context, f facts, failure error) (time.Duration, error) {
	outcome := outcomeFor(f)
	if failure != nil {
		outcome = conditions.Failed(failure)
	}
	r.notify(f, outcome)
	if !f.incomplete {
		r.Metrics.overlapsEnd(f.apiKey.UID, endings(f))
	}
	r.auditExpiry(ctx, f, outcome)
	return nextCheck(f, outcome), r.writeStatus(ctx, f.apiKey, newStatus(f, outcome))
}

// notify emits the warnings that do not stand yet.
func (r *Reconciler) notify(f facts, outcome conditions.Outcome) {
	if slices.Contains(r.Notify(f.apiKey, f.warned, actionPublish, noticesFor(f, outcome)), reasonKeyLost) {
		r.Metrics.lost.Inc()
	}
}

// reportDeletion says why a deleted ApiKey is still there, and whether its key is accepted.
func (r *Reconciler) reportDeletion(ctx context.Context, apiKey *v1alpha1.ApiKey, outcome conditions.Outcome, usable metav1.ConditionStatus) error {
	notices := append(outcome.Notices(), conditions.Notice{Condition: metav1.Condition{
		Type: v1alpha1.UsableCondition, Status: usable, Reason: outcome.Reason, Message: outcome.Message,
	}})
	r.Notify(apiKey, r.Warned(apiKey, apiKey.Status.Conditions), actionPublish, notices)
	status := *apiKey.Status.DeepCopy()
	status.ObservedGeneration = apiKey.Generation
	status.Conditions = conditions.Only(status.Conditions, notices, apiKey.Generation, r.Clock.Now().UTC())
	return r.writeStatus(ctx, apiKey, status)
}

// ReportUnrestricted says that the key is not restricted as the spec says.
func (r *Reconciler) ReportUnrestricted(ctx context.Context, f facts, failure error) error {
	f.incomplete = true
	outcome := conditions.Stalled(v1alpha1.ReasonStillAccepted,
		"A restriction of the spec is not in force, and the key still works as before: %v. The operator retries", failure)
	r.notify(f, outcome)
	return r.writeStatus(ctx, f.apiKey, newStatus(f, outcome))
}

// ReportUnrevoked says what a deletion waits for.
func (r *Reconciler) ReportUnrevoked(ctx context.Context, apiKey *v1alpha1.ApiKey, failure error) error {
	if errors.Is(failure, errStillAccepted) {
		outcome := conditions.Stalled(v1alpha1.ReasonStillAccepted, "The deletion is not in force: %v. The operator retries", failure)
		return r.reportDeletion(ctx, apiKey, outcome, metav1.ConditionTrue)
	}
	return r.reportDeletion(ctx, apiKey, conditions.Failed(failure), metav1.ConditionUnknown)
}

// ReportHeld says why a revoked ApiKey is still there.
func (r *Reconciler) ReportHeld(ctx context.Context, apiKey *v1alpha1.ApiKey) error {
	return r.reportDeletion(ctx, apiKey, reconciler.Held("The key"), metav1.ConditionFalse)
}

// newStatus is pure. It rebuilds the status from the record. Without a record it keeps the last status, which tells
// a lost key from a first one.
func newStatus(f facts, outcome conditions.Outcome) v1alpha1.ApiKeyStatus {
	status := *f.apiKey.Status.DeepCopy()
	status.ObservedGeneration = f.apiKey.Generation
	status.KeyID = published.ID(f.apiKey.UID)
	status.Conditions = conditions.After(waitingAnew(f, outcome), noticesFor(f, outcome), f.apiKey.Generation, f.now)
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

// waitingAnew returns the conditions of the status. It leaves Reconciling out if the Merchant begins to be missed now: the time of that
// condition is since when the Merchant is missed, not since when anything failed.
func waitingAnew(f facts, outcome conditions.Outcome) []metav1.Condition {
	existing := slices.Clone(f.apiKey.Status.Conditions)
	waited := meta.FindStatusCondition(existing, v1alpha1.ReconcilingCondition)
	if waited != nil && outcome.Reason == v1alpha1.ReasonMerchantNotFound && waited.Reason != outcome.Reason {
		meta.RemoveStatusCondition(&existing, v1alpha1.ReconcilingCondition)
	}
	return existing
}

// conditionRows has a row for each condition of an ApiKey beside Ready and Usable.
var conditionRows = []struct {
	condition string
	stands    func(facts) *metav1.Condition       // nil: the condition is absent
	warns     func(facts, *metav1.Condition) bool // people are warned of the condition
	event     string                              // the reason of the warning
	confirm   bool                                // the API server confirms the warning
}{
	{v1alpha1.DeliveredCondition, delivery, undelivered, v1alpha1.ReasonNotDelivered, true},
	{v1alpha1.KeyLostCondition, keyLost, because(v1alpha1.ReasonKeyNotReplaced), reasonKeyLost, true},
	{v1alpha1.OldKeyInUseCondition, oldKeyInUse, because(v1alpha1.ReasonOverlapEndsSoon), v1alpha1.ReasonOverlapEndsSoon, false},
	{v1alpha1.ExpiringSoonCondition, expiringSoon, because(v1alpha1.ReasonExpiresAt), v1alpha1.ExpiringSoonCondition, false},
	{v1alpha1.RotatingSoonCondition, rotatingSoon, because(v1alpha1.ReasonSchedule), v1alpha1.RotatingSoonCondition, false},
}

func because(reason string) func(facts, *metav1.Condition) bool {
	return func(_ facts, c *metav1.Condition) bool { return c.Reason == reason }
}

// undelivered reports whether nobody has the current key. While a new one is to be delivered, the Secret may hold that one already.
func undelivered(f facts, c *metav1.Condition) bool {
	_, blocked := obstacle(f)
	return c.Reason == v1alpha1.ReasonNotDelivered && (blocked || wantedKey(f) == nil)
}

// noticesFor returns what people are told of an ApiKey.
func noticesFor(f facts, outcome conditions.Outcome) []conditions.Notice {
	notices := append(outcome.Notices(), usableNotice(f, outcome))
	for _, row := range conditionRows {
		notice := conditions.Absent(row.condition)
		notice.Unread, notice.Confirm = f.incomplete, row.confirm
		if c := row.stands(f); c != nil && !f.incomplete {
			notice.Condition = *c
			if row.warns(f, c) {
				notice.Event = row.event
			}
		}
		notices = append(notices, notice)
	}
	return notices
}

// usableNotice warns of a key that is refused although its spec is in force. Nobody waits for a key that nobody has.
func usableNotice(f facts, outcome conditions.Outcome) conditions.Notice {
	notice := conditions.Notice{Condition: usable(f, outcome)}
	if c := notice.Condition; outcome.IsReady() && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonNotIssued {
		notice.Event = c.Reason
	}
	return notice
}

// unconfirmed reports whether there is a warning to emit that the API server must confirm, because the facts are from a cache.
func unconfirmed(f facts) bool {
	return slices.ContainsFunc(noticesFor(f, outcomeFor(f)), func(n conditions.Notice) bool {
		return n.Confirm && n.Event != "" && !f.warned.Has(n.Condition.Type, n.Condition.Reason)
	})
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

// triggerWithoutEffect reports whether the trigger changed and rotates nothing: only another digest replaces an
// externally generated key. With delivery.policy None it was removed, because the CRD does not allow one.
func triggerWithoutEffect(f facts) bool {
	record, known := f.ownRecord()
	return known && f.target() == "" && sameDigest(f.digest, record.HandledDigest) &&
		f.apiKey.Spec.Rotation.Trigger != record.HandledTrigger
}

const (
	// expiringSoonBefore is how long before its expiry a key gets ExpiringSoon.
	expiringSoonBefore = 7 * 24 * time.Hour
	// rotatingSoonBefore is how long before a scheduled rotation a key gets RotatingSoon; a tenth of the interval, if that
	// is less.
	rotatingSoonBefore = 24 * time.Hour
)

// upcoming is what is ahead of a key, said by a condition that exists only while it is true.
type upcoming struct {
	condition, reason string
	at                time.Time // zero: never
	ahead             time.Duration
	text              string // with a place for the time
}

func expiryAhead(f facts) upcoming {
	end := expiry(f)
	if !f.now.Before(end) {
		end = time.Time{} // Usable says so
	}
	return upcoming{v1alpha1.ExpiringSoonCondition, v1alpha1.ReasonExpiresAt, end, expiringSoonBefore, "The key expires at %s"}
}

func rotationAhead(f facts) upcoming {
	every := seconds(f.apiKey.Spec.Rotation.EverySeconds)
	at, _ := nextRotation(f)
	return upcoming{
		v1alpha1.RotatingSoonCondition, v1alpha1.ReasonSchedule, at, min(rotatingSoonBefore, every/10), "The key will be rotated at %s",
	}
}

func expiringSoon(f facts) *metav1.Condition { return expiryAhead(f).standing(f.now) }

func rotatingSoon(f facts) *metav1.Condition { return rotationAhead(f).standing(f.now) }

// starts is when the condition begins; zero: never.
func (u upcoming) starts() time.Time {
	if u.at.IsZero() {
		return time.Time{}
	}
	return u.at.Add(-u.ahead)
}

// standing returns the condition; nil: it is absent.
func (u upcoming) standing(now time.Time) *metav1.Condition {
	if u.at.IsZero() || now.Before(u.starts()) {
		return nil
	}
	return &metav1.Condition{
		Type: u.condition, Status: metav1.ConditionTrue, Reason: u.reason, Message: fmt.Sprintf(u.text, u.at.Format(time.RFC3339)),
	}
}
