package subject

import (
	"fmt"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Outcome is what a pass over an object came to, in the words of its conditions.
type Outcome struct {
	// Reason is the reason of the conditions, and of the event that tells of a change.
	Reason string
	// Message is for people. It never holds key material.
	Message string

	// abnormal is the condition beside Ready=False that is true; empty: the object is Ready.
	abnormal string
}

// Ready says that the data plane has been told everything the spec asks for.
func Ready(message string) Outcome {
	return Outcome{Reason: v1alpha1.ReasonPublished, Message: message}
}

// Waiting says that the operator will go on by itself, once something it waits for happens.
func Waiting(reason, format string, args ...any) Outcome {
	return Outcome{Reason: reason, Message: fmt.Sprintf(format, args...), abnormal: v1alpha1.ReconcilingCondition}
}

// Stalled says that nothing will happen until a person changes something.
func Stalled(reason, format string, args ...any) Outcome {
	return Outcome{Reason: reason, Message: fmt.Sprintf(format, args...), abnormal: v1alpha1.StalledCondition}
}

// Failed says that a call to the Kubernetes API failed and will be tried again.
func Failed(err error) Outcome {
	return Waiting(v1alpha1.ReasonFailed, "Will try again: %v", err)
}

// IsReady reports whether the object is Ready.
func (o Outcome) IsReady() bool { return o.abnormal == "" }
