package apikeys

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// rotationReason is why a new key is needed, and the overlap of the old one.
type rotationReason struct {
	cause   v1alpha1.RotationCause
	overlap time.Duration
}

// rotationNeeded returns the first reason that applies; ok is false if the current key can stay.
func rotationNeeded(f facts) (reason rotationReason, ok bool) {
	for _, rule := range []func(facts) (rotationReason, bool){
		recordMissing, merchantReplaced, digestChanged, deliveryRequested, triggerChanged, scheduleElapsed,
	} {
		if reason, ok = rule(f); ok {
			return reason, true
		}
	}
	return rotationReason{}, false
}

// triggerLimit is the limit on rotations that a change of the spec causes.
func triggerLimit(f facts) reconciler.TriggerLimit {
	record, _ := f.ownRecord()
	return reconciler.NewTriggerLimit(record.TriggerTAT, f.now)
}

// rotationDeferred: the spec changed again and again. Nothing that restricts the key waits with the rotation.
func rotationDeferred(f facts) (conditions.Outcome, bool) {
	reason, needed := rotationNeeded(f)
	limit := triggerLimit(f)
	return limit.Outcome("The key"), needed && reason.cause == v1alpha1.RotationTrigger && !limit.At.IsZero()
}

// recordMissing: the first key, or a lost record. No old key can be verified, so there is no overlap.
func recordMissing(f facts) (rotationReason, bool) {
	if lost(f) {
		return rotationReason{cause: v1alpha1.RotationRecovery}, true
	}
	_, ok := f.ownRecord()
	return rotationReason{cause: v1alpha1.RotationInitial}, !ok
}

// merchantReplaced: a Merchant that was created again is another one, and the old key must not charge for it.
func merchantReplaced(f facts) (rotationReason, bool) {
	return rotationReason{cause: v1alpha1.RotationInitial}, f.record.MerchantID != f.merchantID
}

// digestChanged: another externally generated key, or a change between external and own keys. An unchanged digest
// never undoes a rotation over HTTP.
func digestChanged(f facts) (rotationReason, bool) {
	return rotationReason{v1alpha1.RotationTrigger, overlap(f)}, !sameDigest(f.digest, f.record.HandledDigest)
}

// deliveryRequested: delivery.policy is no longer None, and nobody has a key yet. A key that somebody has stays.
func deliveryRequested(f facts) (rotationReason, bool) {
	return rotationReason{v1alpha1.RotationTrigger, overlap(f)}, f.target() != "" && !f.record.Issued()
}

// triggerChanged: any change. It has no effect on a key that the operator cannot deliver.
func triggerChanged(f facts) (rotationReason, bool) {
	changed := f.apiKey.Spec.Rotation.Trigger != f.record.HandledTrigger
	return rotationReason{v1alpha1.RotationTrigger, overlap(f)}, changed && f.target() != ""
}

// scheduleElapsed: once after any downtime, because the next interval starts at the rotation.
func scheduleElapsed(f facts) (rotationReason, bool) {
	next, scheduled := nextRotation(f)
	return rotationReason{v1alpha1.RotationSchedule, overlap(f)}, scheduled && !f.clockWrong && !f.now.Before(next)
}

func overlap(f facts) time.Duration { return seconds(f.apiKey.Spec.Rotation.OverlapSeconds) }

// seconds reads a field in seconds; absent: 0.
func seconds(field *int32) time.Duration {
	if field == nil {
		return 0
	}
	return time.Duration(*field) * time.Second
}

func sameDigest(a, b *apikey.Digest) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}

// nextRotation is when the schedule rotates the key; ok is false without a schedule, or if keys are not delivered.
func nextRotation(f facts) (at time.Time, ok bool) {
	every := seconds(f.apiKey.Spec.Rotation.EverySeconds)
	record, known := f.ownRecord()
	if every == 0 || !known || f.target() == "" {
		return time.Time{}, false
	}
	return slotBefore(record.LastRotation.Time.Add(every), every, f.apiKey.UID), true
}

// slotBefore returns the last time slot of the key that is not after due. An interval has at least ten slots, so a
// key is rotated up to a tenth early. The offset of the slots is derived from the UID, so that keys created together
// do not rotate together. A late rotation does not move the next one, so delays do not add up.
func slotBefore(due time.Time, every time.Duration, uid types.UID) time.Time {
	slot := int64((every / 10).Seconds())
	sum := sha256.Sum256([]byte(uid))
	phase := int64(binary.BigEndian.Uint64(sum[:8])>>1) % slot
	second := due.Unix()
	return time.Unix(second-(second-phase)%slot, 0).UTC()
}

// cleanupTime is when the first ended overlap leaves the record; zero: there is none.
func cleanupTime(f facts) time.Time {
	var first time.Time
	if record, known := f.ownRecord(); known {
		for _, previous := range record.Previous {
			if at := previous.ValidUntil.Add(reconciler.EndedMargin); first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	return first
}

// overlapEnd is when the first running overlap ends; zero: none.
func overlapEnd(f facts) time.Time {
	var first time.Time
	if record, known := f.ownRecord(); known {
		for _, previous := range record.PreviousAt(f.now) {
			if first.IsZero() || previous.ValidUntil.Before(first) {
				first = previous.ValidUntil
			}
		}
	}
	return first
}
