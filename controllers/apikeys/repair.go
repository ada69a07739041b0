package apikeys

import (
	"github.com/merchant-operator/merchant-operator/api/published"
)

// repair returns the record as it should be; nil: it is as it should be, or there is none of this
// ApiKey's. Digest, generation and overlaps are the truth and stay as they are.
func repair(f facts) *published.KeyRecord {
	record, known := f.ownRecord()
	if !known {
		return nil
	}
	want := asSpecified(record, f)
	if triggerIdle(f) {
		want.HandledTrigger = f.apiKey.Spec.Rotation.Trigger
	}
	if want.Equal(record) && f.published.Labels[published.Label] == published.LabelKey {
		return nil
	}
	want.Revision = record.NextRevision(f.now)
	return &want
}

// asSpecified returns the record with all that follows from the ApiKey itself.
func asSpecified(record published.KeyRecord, f facts) published.KeyRecord {
	spec := f.apiKey.Spec
	record.Source.Namespace, record.Source.Name = f.apiKey.Namespace, f.apiKey.Name
	record.State = spec.State
	record.ExpiresAt = nil
	if spec.ExpiresAt != nil {
		expires := spec.ExpiresAt.UTC()
		record.ExpiresAt = &expires
	}
	return record
}

// triggerIdle reports whether the trigger changed and cannot do anything: a key made elsewhere is
// replaced by another digest only.
func triggerIdle(f facts) bool {
	record, known := f.ownRecord()
	return known && f.digest != nil && sameDigest(f.digest, record.HandledDigest) &&
		f.apiKey.Spec.Rotation.Trigger != record.HandledTrigger
}
