package apikeys

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const (
	// expiryNotice is how far ahead people are told of the end of a key.
	expiryNotice = 7 * 24 * time.Hour
	// rotationNotice is how far ahead they are told of a scheduled rotation, at most: a tenth of the
	// interval, if that is less.
	rotationNotice = 24 * time.Hour
)

// notice is a condition that tells of something ahead. It is present only while it is true.
type notice struct {
	condition, reason string
	at                time.Time // zero: never
	ahead             time.Duration
	text              string // with a place for the time
}

// notices are what lies ahead of the key, whether it is time to tell or not.
func notices(f facts) []notice {
	var expiry time.Time
	if expires := f.apiKey.Spec.ExpiresAt; expires != nil {
		expiry = expires.UTC()
	}
	every := seconds(f.apiKey.Spec.Rotation.EverySeconds)
	return []notice{
		{v1alpha1.ExpiringSoonCondition, v1alpha1.ReasonExpiresAt, expiry, expiryNotice, "The key is refused from %s on"},
		{v1alpha1.RotatingSoonCondition, v1alpha1.ReasonSchedule, dueRotation(f), min(rotationNotice, every/10), "The key is replaced at %s"},
	}
}

// starts is when the notice is given; zero: never.
func (n notice) starts() time.Time {
	if n.at.IsZero() {
		return time.Time{}
	}
	return n.at.Add(-n.ahead)
}

func (n notice) given(now time.Time) bool { return !n.at.IsZero() && !now.Before(n.starts()) }

func (n notice) message() string { return fmt.Sprintf(n.text, n.at.Format(time.RFC3339)) }

// withNotices returns the conditions with those of the notices that are given by now.
func withNotices(conditions []metav1.Condition, f facts) []metav1.Condition {
	for _, n := range notices(f) {
		if !n.given(f.now) {
			meta.RemoveStatusCondition(&conditions, n.condition)
			continue
		}
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type:               n.condition,
			Status:             metav1.ConditionTrue,
			Reason:             n.reason,
			Message:            n.message(),
			ObservedGeneration: f.apiKey.Generation,
			LastTransitionTime: metav1.NewTime(f.now),
		})
	}
	return conditions
}

// newNotices are those that the status does not give yet.
func newNotices(f facts) []notice {
	var unsaid []notice
	for _, n := range notices(f) {
		if n.given(f.now) && !meta.IsStatusConditionTrue(f.apiKey.Status.Conditions, n.condition) {
			unsaid = append(unsaid, n)
		}
	}
	return unsaid
}
