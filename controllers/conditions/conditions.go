// Package conditions has what people are told of an object: the outcome of a reconciliation, and the notices, which become
// conditions and warnings.
package conditions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Outcome is the result of a reconciliation.
type Outcome struct {
	// Reason is the reason of the conditions, and of the warning that begins with it.
	Reason string
	// Message is for people. It never contains key material.
	Message string
	// Silent: another object has the warning.
	Silent bool

	// abnormal is the condition that is true beside Ready=False; empty: the object is Ready.
	abnormal string
}

// Ready means that the spec is in force.
func Ready(message string) Outcome {
	return Outcome{Reason: v1alpha1.ReasonPublished, Message: message}
}

// Unusable means that the spec is in force, and that no request with the key is accepted.
func Unusable(reason, format string, args ...any) Outcome {
	return Outcome{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Waiting means that the operator continues without a person.
func Waiting(reason, format string, args ...any) Outcome {
	return Outcome{Reason: reason, Message: fmt.Sprintf(format, args...), abnormal: v1alpha1.ReconcilingCondition}
}

// Stalled means that a person must change something.
func Stalled(reason, format string, args ...any) Outcome {
	return Outcome{Reason: reason, Message: fmt.Sprintf(format, args...), abnormal: v1alpha1.StalledCondition}
}

// Failed means that a call to the Kubernetes API failed and will be retried.
func Failed(err error) Outcome {
	return Waiting(v1alpha1.ReasonFailed, "Failed, will retry: %v", err)
}

// IsReady reports whether the object is Ready.
func (o Outcome) IsReady() bool { return o.abnormal == "" }

// Notice is what people are told of an object in one respect: a condition, and an Event when that begins.
type Notice struct {
	// Condition is what stands now. Without a status nothing stands, and the condition is absent.
	Condition metav1.Condition
	// Event is the reason of the warning that begins with the reason of the condition; empty: none.
	Event string
	// Unread: nothing is known, so the condition stays as it was. Its warning still stands, as it does while the condition is Unknown.
	Unread bool
	// Confirm: facts from a cache may be outdated, so the API server must confirm the warning.
	Confirm bool
}

// Absent is a condition that does not stand.
func Absent(kind string) Notice { return Notice{Condition: metav1.Condition{Type: kind}} }

// Stands reports whether the condition is present.
func (n Notice) Stands() bool { return n.Condition.Status != "" }

// Notices returns the conditions of an outcome: Ready always, Reconciling or Stalled only while true.
func (o Outcome) Notices() []Notice {
	ready := metav1.Condition{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: o.Reason, Message: o.Message}
	notices := []Notice{{Condition: ready}}
	for _, kind := range []string{v1alpha1.ReconcilingCondition, v1alpha1.StalledCondition} {
		notice := Absent(kind)
		if kind == o.abnormal {
			notices[0].Condition.Status = metav1.ConditionFalse
			notice.Condition = metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: o.Reason, Message: o.Message}
			if !o.Silent {
				notice.Event = o.Reason
			}
		}
		notices = append(notices, notice)
	}
	return notices
}

// After returns the existing conditions as the notices say, for this generation of the spec. Conditions without a notice stay.
func After(existing []metav1.Condition, notices []Notice, generation int64, now time.Time) []metav1.Condition {
	all := slices.Clone(existing)
	for _, notice := range notices {
		condition := notice.Condition
		switch before := meta.FindStatusCondition(all, condition.Type); {
		case notice.Unread && before != nil:
			before.ObservedGeneration = generation
		case notice.Unread:
		case !notice.Stands():
			meta.RemoveStatusCondition(&all, condition.Type)
		default:
			condition.Message, condition.ObservedGeneration = Cut(condition.Message), generation
			condition.LastTransitionTime = metav1.NewTime(now) // if the status changes
			meta.SetStatusCondition(&all, condition)
		}
	}
	return all
}

// Only returns the conditions of an object of which nothing else is to be said, such as a deleted one.
func Only(existing []metav1.Condition, notices []Notice, generation int64, now time.Time) []metav1.Condition {
	own := slices.DeleteFunc(slices.Clone(existing), func(c metav1.Condition) bool {
		return !slices.ContainsFunc(notices, func(n Notice) bool { return n.Condition.Type == c.Type })
	})
	return After(own, notices, generation, now)
}

// MaxMessage is the maximum length of a message, in bytes. A longer one, such as an error of the API server, is cut. The API server refuses
// an Event with a longer note.
const MaxMessage = 1024

// Cut returns at most MaxMessage bytes of a text, with an ellipsis if it was longer.
func Cut(text string) string {
	const more = "…"
	if len(text) <= MaxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:MaxMessage-len(more)], "") + more
}

// Inactive reports whether an ApiKey is as its spec says and refuses its key: nobody has to be woken for it.
func Inactive(conditions []metav1.Condition) bool {
	return meta.IsStatusConditionTrue(conditions, v1alpha1.ReadyCondition) &&
		meta.IsStatusConditionFalse(conditions, v1alpha1.UsableCondition)
}

// ApplyConfigurations returns conditions in the form of server-side apply.
func ApplyConfigurations(conditions []metav1.Condition) []*metav1ac.ConditionApplyConfiguration {
	var applied []*metav1ac.ConditionApplyConfiguration
	for _, c := range conditions {
		applied = append(applied, metav1ac.Condition().
			WithType(c.Type).
			WithStatus(c.Status).
			WithReason(c.Reason).
			WithMessage(c.Message).
			WithObservedGeneration(c.ObservedGeneration).
			WithLastTransitionTime(c.LastTransitionTime))
	}
	return applied
}
