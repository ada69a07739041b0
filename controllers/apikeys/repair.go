package apikeys

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// repair returns the record as it should be; nil: it is as it should be, or there is none of this
// ApiKey's. Digest, generation and running overlaps are the truth and stay as they are.
func repair(f facts) *published.KeyRecord {
	record, known := f.ownRecord()
	if !known {
		return supersede(f)
	}
	want := asSpecified(record, f)
	if triggerIdle(f) {
		want.HandledTrigger = f.apiKey.Spec.Rotation.Trigger
	}
	if want.Equal(record) && !restored(f) && f.published.Labels[published.Label] == published.LabelKey {
		return nil
	}
	want.Revision = max(record.NextRevision(f.now), restoredRevision(f.published))
	return &want
}

// supersede closes a record that somebody put back, while no new key can take its place; nil: there is
// nothing to close.
func supersede(f facts) *published.KeyRecord {
	if !f.outdated() || f.record.Superseded {
		return nil
	}
	closed := *f.record
	closed.Superseded = true
	closed.Revision = closed.NextRevision(f.now)
	return &closed
}

// asSpecified returns the record with all that follows from the ApiKey itself.
func asSpecified(record published.KeyRecord, f facts) published.KeyRecord {
	spec := f.apiKey.Spec
	record.Source.Namespace, record.Source.Name = f.apiKey.Namespace, f.apiKey.Name
	record.State = spec.State
	if f.merchantID == "" { // it is told to replicas that may not hear of the Merchant's end
		record.State = v1alpha1.ApiKeyDisabled
	}
	record.Previous = record.PreviousAt(f.now)
	record.ExpiresAt = nil
	if spec.ExpiresAt != nil {
		expires := spec.ExpiresAt.UTC()
		record.ExpiresAt = &expires
	}
	return record
}

// overlapEnd is when the first of the running overlaps ends; zero: there is none.
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

// restoreGap is more than the clocks of the operator and of the API server differ.
const restoreGap = time.Minute

// restored reports whether the Secret was put back from a backup: it is newer than what it says. The
// data plane may have seen it vanish and hold its revision for revoked, so it needs a newer one.
func restored(f facts) bool {
	return f.published.CreationTimestamp.Sub(time.UnixMilli(f.record.Revision)) > restoreGap
}

// restoredRevision is one by which the Secret would not be taken for restored again, whatever the
// operator's clock says.
func restoredRevision(secret *corev1.Secret) int64 { return secret.CreationTimestamp.UnixMilli() }

// triggerIdle reports whether the trigger changed and cannot do anything: a key made elsewhere is
// replaced by another digest only.
func triggerIdle(f facts) bool {
	record, known := f.ownRecord()
	return known && f.digest != nil && sameDigest(f.digest, record.HandledDigest) &&
		f.apiKey.Spec.Rotation.Trigger != record.HandledTrigger
}
