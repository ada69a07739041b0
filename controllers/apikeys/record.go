package apikeys

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// repair returns the record as it should be; nil: it is as it should be, or there is none of this
// ApiKey's. Digest, generation and running overlaps are the truth and stay as they are.
func repair(f facts) *published.KeyRecord {
	record, known := f.ownRecord()
	if !known {
		return supersede(f)
	}
	want := asSpecified(record, f)
	if triggerIgnored(f) {
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
	if f.merchantID == "" { // for replicas that may not hear of the Merchant's end
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

// restoreGap is more than the clocks of the operator and of the API server differ.
const restoreGap = time.Minute

// restored reports whether the Secret was put back from a backup: it is newer than its content. The
// data plane may have seen it vanish and hold its revision for revoked, so it needs a newer one.
func restored(f facts) bool {
	return f.published.CreationTimestamp.Sub(time.UnixMilli(f.record.Revision)) > restoreGap
}

// restoredRevision is one by which the Secret would not be taken for restored again, whatever the
// operator's clock says.
func restoredRevision(secret *corev1.Secret) int64 { return secret.CreationTimestamp.UnixMilli() }

// publish writes the record in place of what was read: nothing, or exactly that version of the
// Secret, for the API writes it as well.
func (r *Reconciler) publish(ctx context.Context, read *corev1.Secret, record published.KeyRecord) error {
	secret, err := published.EncodeKey(r.CredentialsNamespace, record)
	if err == nil {
		err = writes.ReplaceSecret(ctx, r.Client, read, secret)
	}
	if err != nil {
		return fmt.Errorf("publish key %s: %w", record.KeyID, err)
	}
	return nil
}
