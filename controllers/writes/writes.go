// Package writes has the writes of the operator: with one field owner, and never over a version that was not read.
package writes

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// FieldOwner is the field manager of everything the operator writes.
const FieldOwner = "merchant-operator"

// CreateOrUpdate creates an object, or updates the version that was read.
func CreateOrUpdate(ctx context.Context, c client.Client, object client.Object) error {
	if object.GetResourceVersion() == "" {
		return c.Create(ctx, object, client.FieldOwner(FieldOwner))
	}
	return c.Update(ctx, object, client.FieldOwner(FieldOwner))
}

// Object is a published object.
type Object interface {
	*corev1.Secret | *corev1.ConfigMap
	client.Object
}

// Replace creates a published object, or replaces the version that was read (compare-and-swap); nil: there is none. What cannot be changed,
// because a person or an admission policy has made it immutable, or because it is of another type, is deleted in that version and created
// anew: what it publishes must not stay as it is.
func Replace[O Object](ctx context.Context, c client.Client, read, want O) error {
	want.SetUID("")
	want.SetResourceVersion("")
	unfreeze(want)
	switch {
	case read == nil:
	case !frozen(read) && sameType(read, want):
		want.SetUID(read.GetUID())
		want.SetResourceVersion(read.GetResourceVersion())
	default:
		uid, version := read.GetUID(), read.GetResourceVersion()
		if err := c.Delete(ctx, read, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
			return fmt.Errorf("delete %s, which cannot be changed: %w", read.GetName(), err)
		}
	}
	return CreateOrUpdate(ctx, c, want)
}

func frozen(object client.Object) bool {
	switch object := object.(type) {
	case *corev1.Secret:
		return object.Immutable != nil && *object.Immutable
	case *corev1.ConfigMap:
		return object.Immutable != nil && *object.Immutable
	}
	return false
}

func unfreeze(object client.Object) {
	switch object := object.(type) {
	case *corev1.Secret:
		object.Immutable = nil
	case *corev1.ConfigMap:
		object.Immutable = nil
	}
}

// sameType reports whether two Secrets have the same type, which cannot be changed. A record of another type was none.
func sameType(read, want client.Object) bool {
	before, ok := read.(*corev1.Secret)
	after, both := want.(*corev1.Secret)
	return !ok || !both || before.Type == after.Type
}

// Ending reports whether a published object is being deleted. It opens nothing, and goes when its finalizers are removed: what is written
// into it goes with it.
func Ending(object client.Object) bool { return !object.GetDeletionTimestamp().IsZero() }

// DeleteSecret deletes a Secret if the preconditions hold. A missing Secret is not an error.
func DeleteSecret(ctx context.Context, c client.Client, namespace, name string, preconditions client.Preconditions) error {
	secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := client.IgnoreNotFound(c.Delete(ctx, secret, preconditions)); err != nil {
		return fmt.Errorf("delete Secret %s: %w", types.NamespacedName{Namespace: namespace, Name: name}, err)
	}
	return nil
}

// DisableKey writes the state Disabled into a published record, so that no replica accepts the key, and puts what is stored then into the Secret.
// It leaves the record for the caller who comes after an interruption. A record that cannot be decoded opens nothing; in one of a newer version,
// which replicas follow, only the envelope is written: it is revoked.
func DisableKey(ctx context.Context, c client.Client, secret *corev1.Secret, now time.Time) error {
	if Ending(secret) {
		return nil
	}
	record, err := published.DecodeKey(secret)
	switch {
	case errors.Is(err, published.ErrNewerVersion):
		return revokeKey(ctx, c, secret, now)
	case err != nil || record.State == v1alpha1.ApiKeyDisabled:
		return nil //nolint:nilerr // see above
	}
	record.State, record.Revision = v1alpha1.ApiKeyDisabled, record.NextRevision(now)
	disabled, err := published.EncodeKey(secret.Namespace, record)
	if err == nil {
		err = client.IgnoreNotFound(Replace(ctx, c, secret, disabled))
	}
	if err != nil {
		return fmt.Errorf("disable key %s: %w", record.KeyID, err)
	}
	*secret = *disabled
	return nil
}

// RetireClaims marks the claims to digests that another key has replaced, before the record of their ApiKey is deleted: an ApiKey that is created
// again with its name gets the current digest back, and none that was rotated away. Of a record that is superseded the newest key is unknown: the
// digest that it has handled stays refused, as it is while the ApiKey exists, and nothing is concluded about others. Nor is anything from a
// record that cannot be decoded.
func RetireClaims(ctx context.Context, c client.Client, secret *corev1.Secret, claims []corev1.Secret) error {
	record, err := published.DecodeKey(secret)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	for i := range claims {
		claim, err := published.DecodeDigestClaim(&claims[i])
		if err != nil || claim.KeyID != record.KeyID || claim.Replaced || !replaced(record, claim.Digest) {
			continue
		}
		claim.Replaced = true
		retired, err := published.EncodeDigestClaim(secret.Namespace, claim)
		if err == nil {
			err = client.IgnoreNotFound(Replace(ctx, c, &claims[i], retired))
		}
		if err != nil {
			return fmt.Errorf("retire claim %s: %w", claims[i].Name, err)
		}
	}
	return nil
}

// replaced reports whether a digest that the ApiKey of the record has claimed must not return without the record.
func replaced(record published.KeyRecord, digest apikey.Digest) bool {
	if record.Superseded {
		return record.HandledDigest != nil && digest.Equal(*record.HandledDigest)
	}
	return !digest.Equal(record.Current.Digest)
}

// revokeKey revokes a record by its envelope. One without an envelope ends with its tombstone, which the caller writes.
func revokeKey(ctx context.Context, c client.Client, secret *corev1.Secret, now time.Time) error {
	revoked, err := published.RevokeKey(secret, true, now)
	if err != nil || revoked == nil {
		return nil //nolint:nilerr // see above
	}
	if err := client.IgnoreNotFound(Replace(ctx, c, secret, revoked)); err != nil {
		return fmt.Errorf("revoke key %s: %w", published.KeyID(secret.Name), err)
	}
	*secret = *revoked
	return nil
}

// CloseMerchant writes the state Closed into a published merchant, so that its keys are refused. For the rest it is like DisableKey.
func CloseMerchant(ctx context.Context, c client.Client, configMap *corev1.ConfigMap) error {
	if Ending(configMap) {
		return nil
	}
	record, err := published.DecodeMerchant(configMap)
	switch {
	case errors.Is(err, published.ErrNewerVersion):
		return revokeMerchant(ctx, c, configMap)
	case err != nil || record.State == v1alpha1.MerchantClosed:
		return nil //nolint:nilerr // as for keys
	}
	record.State = v1alpha1.MerchantClosed
	closed, err := published.EncodeMerchant(configMap.Namespace, record)
	if err == nil {
		err = client.IgnoreNotFound(Replace(ctx, c, configMap, closed))
	}
	if err != nil {
		return fmt.Errorf("close merchant %s: %w", record.MerchantID, err)
	}
	*configMap = *closed
	return nil
}

// revokeMerchant is like revokeKey. A merchant without an envelope ends when the caller deletes it.
func revokeMerchant(ctx context.Context, c client.Client, configMap *corev1.ConfigMap) error {
	revoked, err := published.RevokeMerchant(configMap, true)
	if err != nil || revoked == nil {
		return nil //nolint:nilerr // as for keys
	}
	if err := client.IgnoreNotFound(Replace(ctx, c, configMap, revoked)); err != nil {
		return fmt.Errorf("revoke merchant %s: %w", configMap.Name, err)
	}
	*configMap = *revoked
	return nil
}

// Tombstone records in the credentials namespace that an object was deleted. An existing tombstone stays. Nothing is
// written into a namespace that is being deleted.
func Tombstone(ctx context.Context, c client.Client, apiReader client.Reader, namespace string, tombstone published.Tombstone) error {
	want, err := published.EncodeTombstone(namespace, tombstone)
	if err != nil {
		return fmt.Errorf("write the tombstone of %s %s: %w", tombstone.Kind, tombstone.ID, err)
	}
	err = c.Create(ctx, want, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		err = repairTombstone(ctx, c, apiReader, want)
	}
	if err != nil && !namespaceGone(err) {
		return fmt.Errorf("write the tombstone %s: %w", want.Name, err)
	}
	return nil
}

func repairTombstone(ctx context.Context, c client.Client, apiReader client.Reader, want *corev1.ConfigMap) error {
	existing := new(corev1.ConfigMap)
	if err := apiReader.Get(ctx, client.ObjectKeyFromObject(want), existing); err != nil {
		return err
	}
	_, err := published.DecodeTombstone(existing)
	readable := err == nil || errors.Is(err, published.ErrNewerVersion)
	if readable && existing.Labels[published.Label] == published.LabelTombstone {
		return nil
	}
	if readable {
		want.Data = existing.Data
	}
	return Replace(ctx, c, existing, want)
}

func namespaceGone(err error) bool {
	var status apierrors.APIStatus
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		apierrors.IsNotFound(err) && errors.As(err, &status) &&
			status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}
