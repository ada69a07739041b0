package apikeys

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

// newKey is a key to issue.
type newKey struct {
	rotationReason
	// base is the record to rotate: as in the spec, one generation earlier.
	base published.KeyRecord
}

func (n newKey) generation() int64 { return n.base.Generation + 1 }

// wantedKey returns the key to issue; nil: none, or not yet.
func wantedKey(f facts) *newKey {
	reason, needed := rotationNeeded(f)
	if _, deferred := rotationDeferred(f); deferred || !needed {
		return nil
	}
	generation := nextGeneration(f)
	base, known := f.ownRecord()
	if !known {
		base.Revision, base.Current.CreatedAt = f.lastKnown()
	}
	base.KeyID = published.ID(f.apiKey.UID)
	base.MerchantID = f.merchantID
	base.Source.UID = f.apiKey.UID
	base.Generation = generation - 1
	base.HandledDigest = f.digest
	base = asSpecified(base, f)
	base.HandledTrigger = f.apiKey.Spec.Rotation.Trigger
	if reason.cause == v1alpha1.RotationTrigger {
		base.TriggerTAT = triggerLimit(f).TAT
	}
	return &newKey{rotationReason: reason, base: base}
}

// lastKnown returns the revision and creation time that a new record must exceed, because replicas order versions by
// them.
func (f facts) lastKnown() (revision int64, created time.Time) {
	newest := f.seen.order
	if f.outdated() {
		for _, order := range []published.Order{f.record.Order(), {Issued: f.record.NewerIssued}} {
			newest.Issued, newest.Revision = max(newest.Issued, order.Issued), max(newest.Revision, order.Revision)
		}
	}
	if newest.Issued > 0 {
		created = time.UnixMilli(newest.Issued).UTC()
	}
	return newest.Revision, created
}

// nextGeneration is above every generation that the credentials namespace knows: the published record, readable or not, and those that
// this operator has seen there. What a tenant may write does not count.
func nextGeneration(f facts) int64 {
	last := f.seen.generation
	if f.record != nil {
		last = max(last, f.record.Generation)
	} else if f.secret != nil {
		last = max(last, published.ReadableGeneration(f.secret))
	}
	return last + 1
}

// issue delivers a new key, then publishes it by compare-and-swap. The other order could leave a valid key that nobody has. If it ends in
// between, the delivered key was never valid, and the next reconciliation delivers one again. The loser of a race has published nothing.
func (r *Reconciler) issue(ctx context.Context, f *facts, key newKey) error {
	current, err := r.prepare(ctx, f, key)
	if err != nil {
		return err
	}
	record := key.base.Rotated(current, key.cause, key.overlap, f.now)
	if err := r.publish(ctx, f, record); err != nil {
		return err
	}
	r.unpublished.Remove(f.apiKey.UID)
	f.unpublished = unpublishedKey{}
	r.Audit.Write(ctx, auditlog.Rotation(record)...)
	r.auditedRotation(record)
	if record.Issued() {
		r.Metrics.rotated(key.cause)
		r.Emit(f.apiKey, reasonRotated, actionIssue, "Issued key (generation %d, cause %s)%s", record.Generation, key.cause, oldKeys(record))
	} else {
		r.Emit(f.apiKey, v1alpha1.ReasonPublished, actionPublish,
			"Published without a key (generation %d, cause %s)%s", record.Generation, key.cause, oldKeys(record))
	}
	if key.cause == v1alpha1.RotationRecovery {
		r.warnOfLoss(*f)
	}
	return nil
}

// oldKeys describes until when the former keys are valid, for the event.
func oldKeys(record published.KeyRecord) string {
	switch {
	case len(record.Previous) > 0:
		return fmt.Sprintf("; old keys are valid until %s at most", record.Previous[0].ValidUntil.Format(time.RFC3339))
	case record.Generation > 1:
		return "; all old keys are refused"
	}
	return ""
}

// warnOfLoss reports a key that replaced a lost one. The loss may have been counted earlier, when no key could be
// issued.
func (r *Reconciler) warnOfLoss(f facts) {
	if !f.warned.Has(v1alpha1.KeyLostCondition, v1alpha1.ReasonKeyNotReplaced) {
		r.Metrics.lost.Inc()
	}
	if c := keyLost(f); c != nil {
		r.Warn(f.apiKey, reasonKeyLost, actionIssue, "%s", c.Message)
		return
	}
	r.Warn(f.apiKey, reasonRecordRestored, actionIssue,
		"The published record was lost. The key of spec.keyDigest was published again; keys in their overlap are refused")
}

// prepare returns the key to publish; a generated key is delivered first, and one that cannot be delivered is none.
func (r *Reconciler) prepare(ctx context.Context, f *facts, wanted newKey) (published.Current, error) {
	switch {
	case f.digest != nil:
		return published.Current{Digest: *f.digest, CreatedAt: f.now}, nil
	case f.target() == "":
		return published.Placeholder(f.now), nil
	}
	key, found, err := r.resume(ctx, *f, wanted)
	if err == nil && !found {
		key, err = r.generateAndDeliver(ctx, f, wanted)
	}
	if err != nil {
		return published.Current{}, err
	}
	return published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: f.now}, nil
}

// maxUnpublished is the number of keys of Reconciler.unpublished.
const maxUnpublished = 1000

// unpublishedKey is a key that this operator has delivered.
type unpublishedKey struct {
	generation int64
	digest     apikey.Digest
}

// insteadOf reports whether the key was delivered as that of the record's generation, and the record has another one.
func (k unpublishedKey) insteadOf(record published.KeyRecord) bool {
	return k.generation == record.Generation && !k.digest.Equal(record.Current.Digest)
}

// unpublishedKeyFor returns the key of the ApiKey that this operator has delivered and not published; the zero value: none.
func (r *Reconciler) unpublishedKeyFor(apiKey *v1alpha1.ApiKey) unpublishedKey {
	known, _ := r.unpublished.Get(apiKey.UID)
	key, _ := known.(unpublishedKey)
	return key
}

// resume returns the key that this operator delivered before its publication failed, so that a failure that lasts does not change the
// delivered Secret again and again. Only the memory of this process has that key: a tenant who may write Secrets beside the ApiKey
// may put any key into it, also one that was revoked.
func (r *Reconciler) resume(ctx context.Context, f facts, wanted newKey) (key apikey.Key, found bool, err error) {
	if f.unpublished.generation != wanted.generation() || f.deliveredAs(f.target()) == nil {
		return apikey.Key{}, false, nil
	}
	key, err = r.readKey(ctx, f, f.target())
	return key, err == nil && key.Digest().Equal(f.unpublished.digest), err
}

func (r *Reconciler) generateAndDeliver(ctx context.Context, f *facts, wanted newKey) (apikey.Key, error) {
	key, err := wanted.base.NewKey()
	if err != nil {
		return apikey.Key{}, fmt.Errorf("generate a key: %w", err)
	}
	var lostSince time.Time
	if wanted.cause == v1alpha1.RotationRecovery {
		lostSince = f.now
	}
	if err := r.deliver(ctx, f, key, wanted.generation(), lostSince); err != nil {
		return apikey.Key{}, err
	}
	r.unpublished.Add(f.apiKey.UID, unpublishedKey{wanted.generation(), key.Digest()})
	return key, nil
}

// readKey reads the plaintext from a delivered Secret; the zero Key: none.
func (r *Reconciler) readKey(ctx context.Context, f facts, name string) (apikey.Key, error) {
	secretKey := client.ObjectKey{Namespace: f.apiKey.Namespace, Name: name}
	var secret corev1.Secret
	if err := r.APIReader.Get(ctx, secretKey, &secret); err != nil {
		return apikey.Key{}, fmt.Errorf("read the delivered Secret %s: %w", secretKey, err)
	}
	key, err := apikey.Parse(string(secret.Data[dataAPIKey]))
	if err != nil || !tenantsecret.OwnedBy(&secret, f.apiKey.UID) {
		return apikey.Key{}, nil //nolint:nilerr // anything else than a key counts as none
	}
	return key, nil
}
