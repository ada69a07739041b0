package apikeys

import (
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// note is something a person should know although it is no obstacle.
type note struct{ reason, text string }

// notesFor says what a change of the spec could not do. Each is said once, in the pass that first
// sees the change.
func notesFor(f facts) []note {
	if f.apiKey.Status.ObservedGeneration == f.apiKey.Generation {
		return nil
	}
	var notes []note
	if triggerIdle(f) {
		notes = append(notes, note{reasonTriggerIdle,
			"rotation.trigger changed, but the key was made elsewhere: change spec.keyDigest to replace it"})
	}
	if undelivered(f) {
		notes = append(notes, note{reasonNotDelivered,
			"Secret " + f.target() + " does not exist, and nobody can show the key again: change rotation.trigger for a new one"})
	}
	return notes
}

// undelivered reports whether the key in force was made here and is in no Secret although it should be.
func undelivered(f facts) bool {
	record, known := f.ownRecord()
	return known && f.target() != "" && !retentionOver(f) && misplaced(f) == nil &&
		f.deliveredAs(f.target()) == nil && record.LastRotation.Cause != v1alpha1.RotationAPI
}
