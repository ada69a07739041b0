// Package conditions writes the outcome of a reconciliation as conditions: Ready always, Reconciling or Stalled while
// true.
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
	// Reason is the reason of the conditions, and of the event when it changes.
	Reason string
	// Message is for people. It never contains key material.
	Message string

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

// Abnormal returns the condition that is true beside Ready=False; empty: the object is Ready.
func (o Outcome) Abnormal() string { return o.abnormal }

// Conditions returns the existing conditions with the outcome for this generation of the spec: Ready always,
// Reconciling or Stalled only while true.
func (o Outcome) Conditions(existing []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	conditions := slices.Clone(existing)
	for _, kind := range []string{v1alpha1.ReadyCondition, v1alpha1.ReconcilingCondition, v1alpha1.StalledCondition} {
		status := metav1.ConditionTrue
		switch {
		case kind == v1alpha1.ReadyCondition && !o.IsReady():
			status = metav1.ConditionFalse
		case kind != v1alpha1.ReadyCondition && kind != o.abnormal:
			meta.RemoveStatusCondition(&conditions, kind)
			continue
		}
		conditions = With(conditions, metav1.Condition{
			Type: kind, Status: status, Reason: o.Reason, Message: o.Message, ObservedGeneration: generation,
		}, now)
	}
	return conditions
}

// Alone returns the conditions of an object of which nothing else is to be said, such as a deleted one.
func (o Outcome) Alone(existing []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	own := slices.DeleteFunc(slices.Clone(existing), func(c metav1.Condition) bool {
		return c.Type != v1alpha1.ReadyCondition && c.Type != v1alpha1.ReconcilingCondition && c.Type != v1alpha1.StalledCondition
	})
	return o.Conditions(own, generation, now)
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

// With returns the conditions with this one, and with the time now if its status changed.
func With(conditions []metav1.Condition, condition metav1.Condition, now time.Time) []metav1.Condition {
	condition.Message = Cut(condition.Message)
	condition.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&conditions, condition)
	return conditions
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
