package apikeys

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
)

// repair returns the record to write; nil: it is up to date, or belongs to another ApiKey. Digest, generation and
// running overlaps do not change.
func repair(f facts) *published.KeyRecord {
	record, known := f.ownRecord()
	if !known {
		return nil
	}
	want := asSpecified(record, f)
	if triggerWithoutEffect(f) {
		want.HandledTrigger = f.apiKey.Spec.Rotation.Trigger
	}
	if want.Equal(record) && !restored(f) && f.secret.Labels[published.Label] == published.LabelKey {
		return nil
	}
	want.Revision = max(record.NextRevision(f.now), restoredRevision(f.secret))
	return &want
}

// Restriction returns the write that only restricts the key; nil: none is due.
func (r *Reconciler) Restriction(f facts) func(context.Context) error {
	if envelope := restrictedEnvelope(f); envelope != nil {
		return func(ctx context.Context) error { return r.publishEnvelope(ctx, f, envelope) }
	}
	if record := restrictedRecord(f); record != nil {
		return func(ctx context.Context) error { return r.publishAndEmit(ctx, &f, *record) }
	}
	return nil
}

// publishAndEmit publishes a record of the same key, and emits the event of that.
func (r *Reconciler) publishAndEmit(ctx context.Context, f *facts, record published.KeyRecord) error {
	if err := r.publish(ctx, f, record); err != nil {
		return err
	}
	r.Emit(f.apiKey, v1alpha1.ReasonPublished, actionPublish, "Published key (state %s)", record.State)
	return nil
}

// restrictedRecord returns the record with what only restricts the key: it is disabled, expires earlier, may do less, is accepted
// from fewer addresses, or was restored. nil: it has that, or opens nothing.
func restrictedRecord(f facts) *published.KeyRecord {
	if f.record == nil || f.recordOfAnother() { // also while it is being deleted
		return nil
	}
	want := withoutOutdated(f)
	spec := asSpecified(want, f)
	want.Previous = spec.Previous
	if spec.State == v1alpha1.ApiKeyDisabled {
		want.State = v1alpha1.ApiKeyDisabled
	}
	if end := spec.ExpiresAt; end != nil && (want.ExpiresAt == nil || end.Before(*want.ExpiresAt)) {
		want.ExpiresAt = end
	}
	want.Permissions, want.IPAllowlist = narrowed(want, f.apiKey.Spec)
	if want.Equal(*f.record) {
		return nil
	}
	want.Revision = max(want.NextRevision(f.now), restoredRevision(f.secret))
	return &want
}

// restrictedEnvelope returns the published Secret of a newer version, revoked while the spec or the Merchant ends the key, and as narrow as the
// spec; nil: it is so already, or this version writes the whole record. Its envelope is all that an older operator changes, and it widens nothing.
func restrictedEnvelope(f facts) *corev1.Secret {
	if !f.newer {
		return nil
	}
	record, err := published.DecodeKeyEnvelope(f.secret)
	if err != nil || record.Source.UID != f.apiKey.UID {
		return nil
	}
	_, ended := first(f, disabled, expired)
	want := published.KeyRestriction{Revoked: ended || record.MerchantID != f.merchantID}
	want.Permissions, want.IPAllowlist = narrowed(record, f.apiKey.Spec)
	secret, _ := published.RestrictKey(f.secret, want, f.now) // the envelope is readable
	return secret
}

// withoutOutdated returns the record; if it is outdated, without any key that somebody has. Its placeholder is newer than every known version,
// so replicas refuse the newest key too: what ends it now, such as a disabled ApiKey, is published in this record only.
func withoutOutdated(f facts) published.KeyRecord {
	record := *f.record
	withdrawn := record.Superseded && 0 < record.NewerIssued && record.NewerIssued < record.Order().Issued
	if !f.outdated() || withdrawn && record.Order().Compare(f.seen.order) >= 0 {
		return record
	}
	_, newest := f.lastKnown()
	record.Superseded, record.NewerIssued = true, max(newest.UnixMilli(), 1)
	record.Generation = max(record.Generation, f.seen.generation) // this operator may forget it before a key can be issued
	record.Current = published.Placeholder(time.UnixMilli(record.NewerIssued + 1).UTC())
	record.Previous = nil
	return record
}

// narrowed returns what a record permits, as far as the spec does.
func narrowed(record published.KeyRecord, spec v1alpha1.ApiKeySpec) ([]v1alpha1.Permission, []v1alpha1.IPBlock) {
	return shared(record.Permissions, spec.Permissions), allowlist.Narrower(record.IPAllowlist, spec.IPAllowlist)
}

// shared returns the permissions of both; nil: the implied ones. Without a shared one it is empty, which grants nothing.
func shared(permissions, others []v1alpha1.Permission) []v1alpha1.Permission {
	if permissions == nil {
		permissions, others = others, nil
	}
	if permissions == nil {
		return nil
	}
	if others == nil {
		others = v1alpha1.ImpliedPermissions()
	}
	both := []v1alpha1.Permission{}
	for _, permission := range permissions {
		if slices.Contains(others, permission) {
			both = append(both, permission)
		}
	}
	return both
}

// asSpecified returns the record with everything that follows from the ApiKey.
func asSpecified(record published.KeyRecord, f facts) published.KeyRecord {
	spec := f.apiKey.Spec
	record.Source.Namespace, record.Source.Name = f.apiKey.Namespace, f.apiKey.Name
	record.Test = spec.Mode == v1alpha1.ModeTest
	record.State, record.Revocation = spec.State, record.Final()
	if f.merchantID == "" { // for replicas that may not hear of the Merchant's end
		record.State = v1alpha1.ApiKeyDisabled
	}
	if !f.clockWrong {
		record.Previous = record.PreviousAt(f.now.Add(-reconciler.EndedMargin))
	}
	record.Permissions, record.IPAllowlist = spec.Permissions, spec.IPAllowlist
	record.ExpiresAt = nil
	if spec.ExpiresAt != nil {
		expires := spec.ExpiresAt.UTC()
		record.ExpiresAt = &expires
	}
	return record
}

// restoreGap is larger than any difference between the clocks of the operator and the API server.
const restoreGap = time.Minute

// restored reports whether the record vanished and was put back as it was: this operator has seen that, or the Secret is newer than its
// content. The data plane may have revoked its revision when it vanished, so it needs a newer one.
func restored(f facts) bool {
	return f.seen.vanished && f.seen.order == f.record.Order() || f.secret.CreationTimestamp.Sub(time.UnixMilli(f.record.Revision)) > restoreGap
}

// restoredRevision returns a revision with which the Secret no longer counts as restored, whatever the clock of the
// operator.
func restoredRevision(secret *corev1.Secret) int64 { return secret.CreationTimestamp.UnixMilli() }

// publish writes the record in place of the version that was read, or creates it, and puts it into the facts. The API writes it too, so
// this is a compare-and-swap. The audit log has the changed settings before: a reconciliation after an interruption finds nothing changed.
func (r *Reconciler) publish(ctx context.Context, f *facts, record published.KeyRecord) error {
	secret, err := published.EncodeKey(r.CredentialsNamespace, record)
	if err == nil {
		r.auditSettings(ctx, f.secret, secret)
		err = writes.Replace(ctx, r.Client, f.secret, secret)
	}
	if err != nil {
		return fmt.Errorf("publish key %s: %w", record.KeyID, err)
	}
	f.secret, f.record = secret, &record
	r.versions.exists(record.KeyID, newVersion(record))
	return nil
}

// publishEnvelope publishes in the record of a newer version what restricts the key, or no longer revokes it.
func (r *Reconciler) publishEnvelope(ctx context.Context, f facts, envelope *corev1.Secret) error {
	r.auditSettings(ctx, f.secret, envelope)
	if err := writes.Replace(ctx, r.Client, f.secret, envelope); err != nil {
		return fmt.Errorf("restrict Secret %s, which a newer version wrote: %w", envelope.Name, err)
	}
	r.Emit(f.apiKey, v1alpha1.ReasonPublished, actionPublish, "Published key (state %s) in the record of a newer version", f.apiKey.Spec.State)
	return nil
}

// lost reports whether there was a key without a usable published record now. The status counts, because it only words what is reported:
// without a record a new key is issued in any case. Of an ApiKey that is younger than this operator it does not, since the operator would know:
// its tenant may write it, and a lost key is an alarm for the platform's people.
func lost(f facts) bool {
	reported := !f.younger && f.apiKey.Status.KeyGeneration > 0
	if f.recordOfAnother() {
		return reported
	}
	_, known := f.ownRecord()
	return !known && !f.newer && (nextGeneration(f) > 1 || reported)
}

// keyLost returns the condition KeyLost; nil: absent. It is derived from the record, so a lost status does not end it.
// An externally generated key is published again, so it is not lost.
func keyLost(f facts) *metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.KeyLostCondition, Status: metav1.ConditionTrue}
	record, known := f.ownRecord()
	switch {
	case lost(f):
		condition.Reason = v1alpha1.ReasonKeyNotReplaced
		condition.Message = "The published record of the key was lost, so the key gets 401. No key can replace it yet: see condition Ready"
	case known && record.LastRotation.Cause == v1alpha1.RotationRecovery && record.HandledDigest == nil:
		next := "Give the new key to the merchant; the next rotation ends this condition"
		if !record.Issued() {
			next = "Nobody has a key now: rotate it over HTTP, for example in the console"
		}
		condition.Reason = v1alpha1.ReasonKeyReplaced
		condition.Message = fmt.Sprintf("The published record was lost. All keys before generation %d get 401 since %s. %s",
			record.Generation, record.LastRotation.Time.UTC().Format(time.RFC3339), next)
	default:
		return nil
	}
	return &condition
}
