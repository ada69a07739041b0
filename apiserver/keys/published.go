package keys

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

// The errors of a published key.
var (
	ErrKubernetes    = errors.New("the Kubernetes API is unavailable")
	ErrNoKey         = errors.New("there is no published key of that id")
	ErrUnreadableKey = errors.New("the published key cannot be read")
)

// rotationTimeout limits reading and replacing the published key, and on the internal port what is read before that.
const rotationTimeout = 3 * time.Second

// Published reads and writes the published key Secrets at the Kubernetes API, not in the directory.
type Published struct {
	Secrets typedcorev1.SecretInterface // of the credentials namespace
}

// rotation is how to replace a key.
type rotation struct {
	// permit returns an error unless the published record may be rotated.
	permit func(published.KeyRecord) error
	// at is the time of the rotation, by the clock of Redis: overlaps end by it.
	at time.Time
	// overlap is how long the old key stays valid; 0: all old keys end at once.
	overlap time.Duration
	// origin is who asked for the rotation.
	origin auditlog.Origin
	// deadline is that of the swap; zero: rotationTimeout from its beginning.
	deadline time.Time
}

// swapAttempts limits the attempts of a rotation while others write the same Secret.
const swapAttempts = 5

// rotate replaces the key by a new one, if the rotation permits it, and returns the new record. The error is that of permit,
// with the published record, or one of read. After ErrKubernetes the Secret may have been replaced all the same.
func (p Published) rotate(ctx context.Context, keyID string, change rotation) (apikey.Key, published.KeyRecord, error) {
	var next apikey.Key // the same for all attempts
	var lastErr error
	for range swapAttempts {
		secret, record, err := p.read(ctx, keyID)
		switch {
		case errors.Is(err, ErrKubernetes):
			lastErr = err
			continue
		case err != nil:
			return apikey.Key{}, published.KeyRecord{}, err
		}
		if next.ID() == "" {
			if next, err = record.NewKey(); err != nil {
				return apikey.Key{}, published.KeyRecord{}, fmt.Errorf("make a key: %w", err)
			}
		}
		if record.Current.Digest.Equal(next.Digest()) {
			return next, record, nil // an earlier attempt succeeded, and its response was lost
		}
		if record.Superseded {
			return apikey.Key{}, record, fmt.Errorf("%w: the record of key %s was restored from a backup; the operator will issue a new key", ErrKubernetes, keyID)
		}
		if err := change.permit(record); err != nil {
			return apikey.Key{}, record, err
		}
		current := published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: change.at}
		rotated := record.Rotated(current, v1alpha1.RotationAPI, change.overlap, change.at)
		rotated.LastRotation.Actor = change.origin.Actor
		if lastErr = p.retireClaim(ctx, record); lastErr != nil {
			continue
		}
		if lastErr = p.replace(ctx, secret, rotated); lastErr == nil {
			return next, rotated, nil
		}
	}
	return apikey.Key{}, published.KeyRecord{}, fmt.Errorf("%w: rotate key %s: %w", ErrKubernetes, keyID, lastErr)
}

// retireClaim marks the claim to an externally generated key that is about to be replaced. The operator does so after the rotation; if it is away,
// and the record is lost before it is back, only the mark keeps it from publishing the replaced digest again. The operator takes back the mark of a
// rotation that failed.
func (p Published) retireClaim(ctx context.Context, record published.KeyRecord) error {
	if record.HandledDigest == nil || !record.Current.Digest.Equal(*record.HandledDigest) {
		return nil
	}
	secret, err := p.Secrets.Get(ctx, published.DigestClaimName(record.Current.Digest), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read the claim to the key: %w", err)
	}
	claim, err := published.DecodeDigestClaim(secret)
	if err != nil || claim.KeyID != record.KeyID || claim.Replaced {
		return nil //nolint:nilerr // the operator repairs it
	}
	claim.Replaced = true
	encoded, err := published.EncodeDigestClaim(secret.Namespace, claim)
	if err != nil {
		return fmt.Errorf("encode the claim to the key: %w", err)
	}
	if err := p.update(ctx, secret, encoded); err != nil {
		return fmt.Errorf("mark the claim to the key: %w", err)
	}
	return nil
}

// read returns the published Secret of the key id, and its record. Errors: ErrNoKey, ErrUnreadableKey, ErrKubernetes.
func (p Published) read(ctx context.Context, keyID string) (*corev1.Secret, published.KeyRecord, error) {
	secret, err := p.Secrets.Get(ctx, published.KeyName(keyID), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, published.KeyRecord{}, ErrNoKey
	case err != nil:
		return nil, published.KeyRecord{}, fmt.Errorf("%w: read key %s: %w", ErrKubernetes, keyID, err)
	case secret.DeletionTimestamp != nil: // it opens nothing, whatever finalizers hold it
		return nil, published.KeyRecord{}, ErrNoKey
	}
	record, err := published.DecodeKey(secret)
	if err != nil {
		return nil, published.KeyRecord{}, fmt.Errorf("%w: key %s: %w", ErrUnreadableKey, keyID, err)
	}
	return secret, record, nil
}

// supersedeResult is the result of supersede.
type supersedeResult int

const (
	keyCurrent    supersedeResult = iota // not older, or already marked
	keyGone                              // deleted
	keySuperseded                        // marked now
)

// supersede marks the published record of the key id as superseded if it is older than newer, so that the operator issues a
// new key. The audit log has that before: after an interruption the record is found marked. An error wraps ErrKubernetes unless the
// record has changed in between.
func (p Published) supersede(ctx context.Context, keyID string, newer published.Order, audit auditlog.Log) (supersedeResult, error) {
	secret, record, err := p.read(ctx, keyID)
	switch {
	case errors.Is(err, ErrNoKey):
		return keyGone, nil
	case errors.Is(err, ErrUnreadableKey):
		return keyCurrent, nil // it opens nothing
	case err != nil:
		return keyCurrent, err
	case record.Superseded || record.Order().Compare(newer) >= 0:
		return keyCurrent, nil
	}
	restored := record
	record.Superseded, record.NewerIssued = true, newer.Issued
	record.Revision++ // without a clock: it says nothing of when the key was issued
	audit.Write(ctx, auditlog.Settings(restored, record)...)
	switch err := p.replace(ctx, secret, record); {
	case apierrors.IsConflict(err):
		return keyCurrent, err
	case err != nil:
		return keyCurrent, fmt.Errorf("%w: mark key %s: %w", ErrKubernetes, keyID, err)
	}
	return keySuperseded, nil
}

// replace writes the record into the Secret it was read from, unless the Secret has changed since. The rest of the Secret
// stays.
func (p Published) replace(ctx context.Context, secret *corev1.Secret, record published.KeyRecord) error {
	encoded, err := published.EncodeKey(secret.Namespace, record)
	if err != nil {
		return fmt.Errorf("encode the rotated key: %w", err)
	}
	return p.update(ctx, secret, encoded)
}

// update replaces the data of the version that was read, and keeps its labels and annotations.
func (p Published) update(ctx context.Context, read, encoded *corev1.Secret) error {
	changed := read.DeepCopy()
	maps.Copy(changed.Data, encoded.Data)
	_, err := p.Secrets.Update(ctx, changed, metav1.UpdateOptions{FieldManager: "merchant-operator-apiserver"})
	return err
}
