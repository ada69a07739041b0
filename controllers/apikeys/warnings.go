package apikeys

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// warning is an event for a problem that Ready does not report.
type warning struct{ reason, text string }

// warningsFor returns the warnings that the status does not have yet. Each is emitted once: events are written before
// the status, and facts from a cache are confirmed before.
func warningsFor(f facts, blocked bool) []warning {
	var warnings []warning
	if !blocked && f.digest != nil && triggerWithoutEffect(f) {
		warnings = append(warnings, warning{reasonTriggerIgnored,
			"rotation.trigger is ignored for an externally generated key; change spec.keyDigest to replace it"})
	}
	if c := delivery(f); c != nil && c.Reason == v1alpha1.ReasonNotDelivered && !says(f, *c) {
		warnings = append(warnings, warning{c.Reason, c.Message})
	}
	if c := keyLost(f); c != nil && c.Reason == v1alpha1.ReasonKeyNotReplaced && !says(f, *c) {
		warnings = append(warnings, warning{reasonKeyLost, c.Message})
	}
	return warnings
}

// says reports whether the status has the condition, with that reason.
func says(f facts, c metav1.Condition) bool {
	reported := meta.FindStatusCondition(f.apiKey.Status.Conditions, c.Type)
	return reported != nil && reported.Status == c.Status && reported.Reason == c.Reason
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

// conditionOf returns the condition that reports it; nil: it is not time to.
func (u upcoming) conditionOf(f facts) *metav1.Condition {
	if !u.reported(f.now) {
		return nil
	}
	return &metav1.Condition{Type: u.condition, Status: metav1.ConditionTrue, Reason: u.reason, Message: u.message()}
}

// newUpcoming returns those to report that the status does not have yet.
func newUpcoming(f facts) []upcoming {
	if f.incomplete {
		return nil
	}
	var unreported []upcoming
	for _, u := range upcomingFor(f) {
		if u.reported(f.now) && !meta.IsStatusConditionTrue(f.apiKey.Status.Conditions, u.condition) {
			unreported = append(unreported, u)
		}
	}
	return unreported
}
