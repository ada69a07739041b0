package apikeys

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

// auditRotations writes a line for each rotation that the status does not have. The status is written later, so also a rotation whose
// writer was killed, or this operator after its own, has a line.
func (r *Reconciler) auditRotations(ctx context.Context, f facts) {
	if record, known := f.ownRecord(); known && !f.incomplete {
		r.Audit.Write(ctx, unreported(f.apiKey.Status, record)...)
	}
}

// maxUnreported is how many rotations have a line that the status has missed; the newest ones.
const maxUnreported = 100

// unreported returns a line for each rotation of the record that the status does not have. Only of the last one more than the generation
// is known. A status that tenants forge can add lines: a line is left out only if status and record agree.
func unreported(status v1alpha1.ApiKeyStatus, record published.KeyRecord) []auditlog.Line {
	last := reportedRotation(record)
	if status.KeyGeneration == record.Generation && apiequality.Semantic.DeepEqual(status.LastRotation, last) {
		return nil
	}
	var lines []auditlog.Line
	if status.KeyGeneration > 0 { // else it was lost
		for missed := max(status.KeyGeneration+1, record.Generation-maxUnreported+1); missed < record.Generation; missed++ {
			line := auditlog.About(record, auditlog.Rotated, "")
			line.Generation = missed
			lines = append(lines, line)
		}
	}
	return append(lines, auditlog.Rotation(record)...)
}

// auditSettings writes a line for each setting of a key that is about to change.
func (r *Reconciler) auditSettings(ctx context.Context, before, after *corev1.Secret) {
	if before == nil {
		return
	}
	if old, ok := decodeAny(before); ok {
		if next, ok := decodeAny(after); ok {
			r.Audit.Write(ctx, auditlog.Settings(old, next)...)
		}
	}
}

// auditDeletion writes a line about a key that is about to be deleted, and those that its status does not have.
func (r *Reconciler) auditDeletion(ctx context.Context, apiKey *v1alpha1.ApiKey, secret *corev1.Secret) {
	record, ok := decodeAny(secret)
	if !ok {
		return
	}
	if _, err := published.DecodeKey(secret); err == nil { // an envelope does not have the rotation
		r.Audit.Write(ctx, unreported(apiKey.Status, record)...)
	}
	line := auditlog.About(record, auditlog.Deleted, auditlog.Spec)
	line.ChangedAt = apiKey.DeletionTimestamp.Time
	r.Audit.Write(ctx, line)
}

// auditExpiry writes a line about a key whose end has come, before the status says so.
func (r *Reconciler) auditExpiry(ctx context.Context, p *plan) {
	record, known := p.ownRecord()
	if !known || p.outcome.Reason != v1alpha1.ReasonExpired || !p.outcome.Differs(p.apiKey.Status.Conditions) {
		return
	}
	line := auditlog.About(record, auditlog.Expired, auditlog.Schedule)
	line.ChangedAt = expiry(p.facts)
	r.Audit.Write(ctx, line)
}

// decodeAny reads a published key, or the envelope of one of a newer version.
func decodeAny(secret *corev1.Secret) (published.KeyRecord, bool) {
	record, err := published.DecodeKey(secret)
	if err != nil {
		record, err = published.DecodeKeyEnvelope(secret)
	}
	return record, err == nil
}
