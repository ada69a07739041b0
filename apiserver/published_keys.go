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

// publishedKeys are the published key Secrets, read live and not from the directory.
type publishedKeys struct {
	secrets typedcorev1.SecretInterface // of the credentials namespace
	now     func() time.Time
}

// swapAttempts bounds the tries of a rotation against others' writes of the same Secret.
const swapAttempts = 5

// rotate replaces whatever keys the key id has by a new one, if the presented digest is the current one,
// and returns the record that is published then. The error is an unauthorizedError if it is not,
// with the record that says so if there is one; or errKubernetes, after which the swap may
// have happened nevertheless.
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
			return apikey.Key{}, published.KeyRecord{}, unauthorizedError{reasonDeadKey}
		case err != nil:
			lastErr = err
			continue
		}
		record, err := published.DecodeKey(secret)
		if err != nil { // the directory would not know it either
			return apikey.Key{}, published.KeyRecord{}, unauthorizedError{reasonUnknownKey}
		}
		if record.Current.Digest.Equal(next.Digest()) {
			return next, record, nil // an earlier try had succeeded, and only its answer was lost
		}
		if record.Superseded {
			return apikey.Key{}, record, fmt.Errorf("%w: key %s was put back and is about to be issued anew", errKubernetes, keyID)
		}
		now := p.now().UTC()
		if !record.Usable(now) || !record.Current.Digest.Equal(presented) {
			// Another rotation was first, or the key is in its overlap: it must not end the one that took its place.
			return apikey.Key{}, record, unauthorizedError{reasonDeadKey}
		}
		current := published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: now}
		rotated := record.Rotated(current, v1alpha1.RotationAPI, 0, now)
		if lastErr = p.replace(ctx, secret, rotated); lastErr == nil {
			return next, rotated, nil
		}
	}
	return apikey.Key{}, published.KeyRecord{}, fmt.Errorf("%w: rotate key %s: %w", errKubernetes, keyID, lastErr)
}

// supersession is what became of a published record that others know a newer one than.
type supersession int

const (
	keyCurrent    supersession = iota // it is as new, or marked already
	keyGone                           // it is not there
	keySuperseded                     // it was marked
)

// supersede marks the published record of the key id as superseded if it is older than newer. The operator then takes it for
// lost. An error wraps errKubernetes unless the record has changed in between.
func (p publishedKeys) supersede(ctx context.Context, keyID string, newer published.Order) (supersession, error) {
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

// replace writes the record into the Secret it was read from, unless that has changed since, and
// leaves all else of the Secret as it is.
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
