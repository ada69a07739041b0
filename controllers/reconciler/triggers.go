package reconciler

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
)

// A tenant who changes a trigger without end gets triggerBurst rotations at once, and then one in each triggerInterval: each is several writes,
// into the credentials namespace too.
const (
	triggerBurst    = 10
	triggerInterval = time.Minute
)

// TriggerLimit is the limit (GCRA) on rotations that a change of a spec causes.
type TriggerLimit struct {
	// TAT is the theoretical arrival time after one more rotation.
	TAT time.Time
	// At is when that rotation is due; zero: now.
	At time.Time
}

// NewTriggerLimit returns the limit after the rotations whose theoretical arrival time a published record has. One that is too far ahead
// was written by a clock that was ahead, and is cut.
func NewTriggerLimit(tat, now time.Time) TriggerLimit {
	const window = triggerBurst * triggerInterval
	backlog := max(tat.Sub(now), 0)
	if backlog > window { // nobody owes more: else each look would put the rotation off again
		backlog = window - triggerInterval
	}
	limit := TriggerLimit{TAT: now.Add(backlog + triggerInterval)}
	if over := backlog + triggerInterval - window; over > 0 {
		limit.At = now.Add(over)
	}
	return limit
}

// Outcome is the outcome while a rotation is deferred. Subject is what will be rotated, as the beginning of a sentence.
func (l TriggerLimit) Outcome(subject string) conditions.Outcome {
	return conditions.Waiting(v1alpha1.ReasonRotationDeferred,
		"%s will be rotated at %s: the spec changes too often. There are at most %d rotations at once, then one in %d seconds",
		subject, l.At.UTC().Format(time.RFC3339), triggerBurst, int(triggerInterval.Seconds()))
}
