package apikeys

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// warning is something a person should know although the key is Ready.
type warning struct{ reason, text string }

// warningsFor says what a change of the spec could not do. Each is emitted once, in the pass that first
// sees the change.
func warningsFor(f facts) []warning {
	if f.apiKey.Status.ObservedGeneration == f.apiKey.Generation {
		return nil
	}
	var warnings []warning
	if triggerIgnored(f) {
		warnings = append(warnings, warning{reasonTriggerIgnored,
			"rotation.trigger is ignored for an externally generated key; change spec.keyDigest to replace it"})
	}
	if undelivered(f) {
		warnings = append(warnings, warning{reasonNotDelivered,
			"Secret " + f.target() + " does not exist, and the key cannot be shown again; change rotation.trigger to issue a new one"})
	}
	return warnings
}

// triggerIgnored reports whether the trigger changed without effect: an externally generated key is
// replaced by another digest only.
func triggerIgnored(f facts) bool {
	record, known := f.ownRecord()
	return known && f.digest != nil && sameDigest(f.digest, record.HandledDigest) &&
		f.apiKey.Spec.Rotation.Trigger != record.HandledTrigger
}

// undelivered reports whether the key in force was generated here and is in no Secret although it should be.
func undelivered(f facts) bool {
	record, known := f.ownRecord()
	return known && f.target() != "" && !retentionOver(f) && misplaced(f) == nil &&
		f.deliveredAs(f.target()) == nil && record.LastRotation.Cause != v1alpha1.RotationAPI
}

const (
	// expiryAhead is how far ahead the end of a key is reported.
	expiryAhead = 7 * 24 * time.Hour
	// rotationAhead is how far ahead a scheduled rotation is reported, at most: a tenth of the interval, if
	// that is less.
	rotationAhead = 24 * time.Hour
)

// upcoming is something ahead of the key, reported by a condition that is present only while it is true.
type upcoming struct {
	condition, reason string
	at                time.Time // zero: never
	ahead             time.Duration
	text              string // with a place for the time
}

// upcomingFor returns what is ahead of the key, whether it is time to report it or not.
func upcomingFor(f facts) []upcoming {
	var expiry time.Time
	if expires := f.apiKey.Spec.ExpiresAt; expires != nil {
		expiry = expires.UTC()
	}
	every := seconds(f.apiKey.Spec.Rotation.EverySeconds)
	rotation, _ := nextRotation(f)
	return []upcoming{
		{v1alpha1.ExpiringSoonCondition, v1alpha1.ReasonExpiresAt, expiry, expiryAhead, "The key expires at %s"},
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

// withUpcoming returns the conditions with those that are to be reported by now.
func withUpcoming(all []metav1.Condition, f facts) []metav1.Condition {
	for _, u := range upcomingFor(f) {
		if !u.reported(f.now) {
			meta.RemoveStatusCondition(&all, u.condition)
			continue
		}
		meta.SetStatusCondition(&all, metav1.Condition{
			Type:               u.condition,
			Status:             metav1.ConditionTrue,
			Reason:             u.reason,
			Message:            u.message(),
			ObservedGeneration: f.apiKey.Generation,
			LastTransitionTime: metav1.NewTime(f.now),
		})
	}
	return all
}

// newUpcoming are those that the status does not report yet.
func newUpcoming(f facts) []upcoming {
	var unreported []upcoming
	for _, u := range upcomingFor(f) {
		if u.reported(f.now) && !meta.IsStatusConditionTrue(f.apiKey.Status.Conditions, u.condition) {
			unreported = append(unreported, u)
		}
	}
	return unreported
}
