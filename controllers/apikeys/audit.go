package apikeys

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

// audited remembers what of each key id has a line of this operator. The zero value is ready for use.
type audited struct {
	mu   sync.Mutex
	keys map[string]auditedKey
}

// auditedKey is what has a line; the zero value: nothing, or an operator before this one has written it.
type auditedKey struct {
	generation int64
	// expiry is the end, in Unix seconds, that has come.
	expiry int64
}

// get returns what is remembered of a key id.
func (a *audited) get(keyID string) auditedKey {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys[keyID]
}

// edit changes what is remembered of a key id.
func (a *audited) edit(keyID string, change func(*auditedKey)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := a.keys[keyID]
	change(&key)
	if a.keys == nil {
		a.keys = map[string]auditedKey{}
	}
	a.keys[keyID] = key
}

// forget forgets a key id whose ApiKey was deleted.
func (a *audited) forget(keyID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.keys, keyID)
}

// auditRotations writes a line for each rotation that has none yet. So also one whose writer was killed has a line.
func (r *Reconciler) auditRotations(ctx context.Context, f facts) {
	if record, known := f.ownRecord(); known && !f.incomplete {
		r.auditRecord(ctx, f.apiKey, record)
	}
}

func (r *Reconciler) auditRecord(ctx context.Context, apiKey *v1alpha1.ApiKey, record published.KeyRecord) {
	written := r.audited.get(record.KeyID).generation
	if written >= record.Generation {
		return
	}
	if written == 0 {
		r.Audit.Write(ctx, unreported(apiKey.Status, record)...)
	} else {
		r.Audit.Write(ctx, rotations(written, record)...)
	}
	r.auditedRotation(record)
}

// auditedRotation notes that the last rotation of a record has a line.
func (r *Reconciler) auditedRotation(record published.KeyRecord) {
	r.audited.edit(record.KeyID, func(key *auditedKey) { key.generation = record.Generation })
}

// maxUnreported is how many rotations have a line that this operator, or its status, has missed; the newest ones.
const maxUnreported = 100

// unreported returns a line for each rotation of the record that the status does not have. Tenants may write the status, so it counts only
// for what happened before this operator started, and only if it agrees with the record is a line left out.
func unreported(status v1alpha1.ApiKeyStatus, record published.KeyRecord) []auditlog.Line {
	last := reportedRotation(record)
	if status.KeyGeneration == record.Generation && apiequality.Semantic.DeepEqual(status.LastRotation, last) {
		return nil
	}
	if status.KeyGeneration <= 0 { // it was lost
		return auditlog.Rotation(record)
	}
	return rotations(status.KeyGeneration, record)
}

// rotations returns a line for each rotation of the record after a generation, and for the last one whatever that generation is. Only of the
// last one more than the generation is known.
func rotations(after int64, record published.KeyRecord) []auditlog.Line {
	var lines []auditlog.Line
	for missed := max(after+1, record.Generation-maxUnreported+1); missed < record.Generation; missed++ {
		line := auditlog.About(record, auditlog.Rotated, "")
		line.Generation = missed
		lines = append(lines, line)
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

// auditDeletion writes a line about a key that is about to be deleted, and those that have no line yet.
func (r *Reconciler) auditDeletion(ctx context.Context, apiKey *v1alpha1.ApiKey, secret *corev1.Secret) {
	record, ok := decodeAny(secret)
	if !ok {
		return
	}
	if _, err := published.DecodeKey(secret); err == nil { // an envelope does not have the rotation
		r.auditRecord(ctx, apiKey, record)
	}
	line := auditlog.About(record, auditlog.Deleted, auditlog.Spec)
	line.ChangedAt = apiKey.DeletionTimestamp.Time
	r.Audit.Write(ctx, line)
}

// auditExpiry writes a line about a key whose end has come, once for each end. An operator that starts writes it once more.
func (r *Reconciler) auditExpiry(ctx context.Context, f facts, outcome conditions.Outcome) {
	record, known := f.ownRecord()
	if !known {
		return
	}
	end, written := expiry(f), r.audited.get(record.KeyID).expiry
	switch _, over := expired(f); {
	case !over && written != 0: // the end was moved, and may come again
		r.audited.edit(record.KeyID, func(key *auditedKey) { key.expiry = 0 })
	case over && written != end.Unix() && outcome.Reason == v1alpha1.ReasonExpired:
		line := auditlog.About(record, auditlog.Expired, auditlog.Schedule)
		line.ChangedAt = end
		r.Audit.Write(ctx, line)
		r.audited.edit(record.KeyID, func(key *auditedKey) { key.expiry = end.Unix() })
	}
}

// decodeAny reads a published key, or the envelope of one of a newer version.
func decodeAny(secret *corev1.Secret) (published.KeyRecord, bool) {
	record, err := published.DecodeKey(secret)
	if err != nil {
		record, err = published.DecodeKeyEnvelope(secret)
	}
	return record, err == nil
}
