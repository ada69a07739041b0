package apiserver

import (
	"context"
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
)

// publishedKeys reads and writes the published key Secrets at the Kubernetes API, not in the directory.
type publishedKeys struct {
	secrets typedcorev1.SecretInterface // of the credentials namespace
	now     func() time.Time
}

// swapAttempts limits the attempts of a rotation while others write the same Secret.
const swapAttempts = 5

// rotate replaces all keys of the key id by a new one, if the presented digest is the current one, and returns the new record.
// The error is an unauthorizedError, with the published record if there is one, or errKubernetes: then the Secret may have
// been replaced all the same.
func (p publishedKeys) rotate(ctx context.Context, keyID string, presented apikey.Digest) (apikey.Key, published.KeyRecord, error) {
	next, err := apikey.New(keyID)
	if err != nil {
		return apikey.Key{}, published.KeyRecord{}, fmt.Errorf("make a key: %w", err)
	}
	var lastErr error
	for range swapAttempts {
		secret, err := p.secrets.Get(ctx, published.KeyName(keyID), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return apikey.Key{}, published.KeyRecord{}, unauthorizedError{reasonRotated}
		case err != nil:
			lastErr = err
			continue
		}
		record, err := published.DecodeKey(secret)
		if err != nil { // the directory would not know it either
			return apikey.Key{}, published.KeyRecord{}, unauthorizedError{reasonUnknown}
		}
		if record.Current.Digest.Equal(next.Digest()) {
			return next, record, nil // an earlier attempt succeeded, and its response was lost
		}
		if record.Superseded {
			return apikey.Key{}, record, fmt.Errorf("%w: the record of key %s was restored from a backup; the operator will issue a new key", errKubernetes, keyID)
		}
		now := p.now().UTC()
		if !record.Usable(now) || !record.Current.Digest.Equal(presented) {
			// Another rotation was first, or the key is in its overlap and must not end its successor.
			return apikey.Key{}, record, unauthorizedError{reasonRotated}
		}
		current := published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: now}
		rotated := record.Rotated(current, v1alpha1.RotationAPI, 0, now)
		if lastErr = p.replace(ctx, secret, rotated); lastErr == nil {
			return next, rotated, nil
		}
	}
	return apikey.Key{}, published.KeyRecord{}, fmt.Errorf("%w: rotate key %s: %w", errKubernetes, keyID, lastErr)
}

// supersedeResult is the result of supersede.
type supersedeResult int

const (
	keyCurrent    supersedeResult = iota // not older, or already marked
	keyGone                              // deleted
	keySuperseded                        // marked now
)

// supersede marks the published record of the key id as superseded if it is older than newer, so that the operator issues a
// new key. An error wraps errKubernetes unless the record has changed in between.
func (p publishedKeys) supersede(ctx context.Context, keyID string, newer published.Order) (supersedeResult, error) {
	secret, err := p.secrets.Get(ctx, published.KeyName(keyID), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return keyGone, nil
	}
	if err != nil {
		return keyCurrent, fmt.Errorf("%w: read key %s: %w", errKubernetes, keyID, err)
	}
	record, err := published.DecodeKey(secret)
	if err != nil || record.Superseded || record.Order().Compare(newer) >= 0 {
		return keyCurrent, nil //nolint:nilerr // one that cannot be decoded opens nothing
	}
	record.Superseded, record.Revision = true, record.NextRevision(p.now())
	switch err := p.replace(ctx, secret, record); {
	case apierrors.IsConflict(err):
		return keyCurrent, err
	case err != nil:
		return keyCurrent, fmt.Errorf("%w: mark key %s: %w", errKubernetes, keyID, err)
	}
	return keySuperseded, nil
}

// replace writes the record into the Secret it was read from, unless the Secret has changed since. The rest of the Secret
// stays.
func (p publishedKeys) replace(ctx context.Context, secret *corev1.Secret, record published.KeyRecord) error {
	encoded, err := published.EncodeKey(secret.Namespace, record)
	if err != nil {
		return fmt.Errorf("encode the rotated key: %w", err)
	}
	changed := secret.DeepCopy()
	maps.Copy(changed.Data, encoded.Data)
	_, err = p.secrets.Update(ctx, changed, metav1.UpdateOptions{FieldManager: "merchant-operator-apiserver"})
	return err
}
