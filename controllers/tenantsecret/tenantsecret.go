// Package tenantsecret reads and writes the Secrets that the operator delivers to tenants. It never changes a Secret
// of another owner.
package tenantsecret

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/index"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// Label marks a delivered Secret; its value is the kind of content. It is the only label: with labels of the owner a
// GitOps tool would prune the Secret.
const Label = "merchant-operator.io/delivered"

// Values of Label.
const (
	LabelKey     = "key"
	LabelWebhook = "webhook"
)

// Selector selects the delivered Secrets, for the cache of their metadata.
func Selector() (labels.Selector, error) {
	marked, err := labels.NewRequirement(Label, selection.In, []string{LabelKey, LabelWebhook})
	if err != nil {
		return nil, fmt.Errorf("select delivered Secrets: %w", err)
	}
	return labels.NewSelector().Add(*marked), nil
}

// OwnedBy reports whether the Merchant or ApiKey with this UID controls the object.
func OwnedBy(object metav1.Object, uid types.UID) bool {
	owner := controller(object)
	return owner != nil && owner.UID == uid
}

// controller returns the Merchant or ApiKey that controls the object; nil: none does. A tenant can write any kind beside the UID: such a Secret
// is the tenant's, and the admission policy of config/rbac refuses to change or delete it.
func controller(object metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.APIVersion != v1alpha1.SchemeGroupVersion.String() || owner.Kind != "Merchant" && owner.Kind != "ApiKey" {
		return nil
	}
	return owner
}

// HeldBy says whose the Secret is that has the name which object's was to get, as the end of a sentence
// that begins with the Secret.
func HeldBy(secret metav1.Object, object client.Object, kind string) string {
	owner := metav1.GetControllerOf(secret)
	if owner == nil {
		return "was not created by merchant-operator"
	}
	name := owner.Kind + " " + secret.GetNamespace() + "/" + owner.Name
	group, err := schema.ParseGroupVersion(owner.APIVersion)
	switch {
	case err != nil || group.Group != v1alpha1.SchemeGroupVersion.Group:
		return "belongs to " + name + " and was not created by merchant-operator"
	case owner.Kind == kind && owner.Name == object.GetName():
		return "belongs to an earlier " + name + ", which was deleted"
	case owner.Kind == "Merchant":
		return "holds the signing secret of " + name
	default:
		return "holds the key of " + name
	}
}

// endingWait is how long a Secret that is being deleted is waited for, before somebody is asked to remove its finalizers.
const endingWait = time.Minute

// Ending is the outcome if an object, with its kind in its name, is being deleted since a time: what is written into it goes with it. instead is
// what a person can do but remove its finalizers, with a comma before it; empty: nothing.
func Ending(name, instead string, since, now time.Time) conditions.Outcome {
	if now.Sub(since) < endingWait {
		return conditions.Waiting(v1alpha1.ReasonSecretConflict, "%s is being deleted; waiting until it is gone", name)
	}
	return conditions.Stalled(v1alpha1.ReasonSecretConflict,
		"%s is being deleted since %s and its finalizers hold it; remove them%s", name, since.UTC().Format(time.RFC3339), instead)
}

// ByOwner finds the metadata of the delivered Secrets of an owner by its UID.
var ByOwner = index.Index[*metav1.PartialObjectMetadata]{
	Field: "metadata.controller.uid",
	Texts: func(secret *metav1.PartialObjectMetadata) []string {
		owner := controller(secret)
		if owner == nil {
			return nil
		}
		return []string{string(owner.UID)}
	},
	Empty: func() (*metav1.PartialObjectMetadata, client.ObjectList) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
		return Metadata(), list
	},
}

// Metadata returns an empty Secret for metadata only.
func Metadata() *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return metadata
}

// Secrets reads and writes delivered Secrets. Every field is required.
type Secrets struct {
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Cache has the metadata of the delivered Secrets, never their data.
	Cache cache.Cache
}

// List returns the owner's Secrets of any name, from the cache. One that is being deleted counts as gone.
func (s Secrets) List(ctx context.Context, owner client.Object) ([]metav1.ObjectMeta, error) {
	secrets, err := ByOwner.Find(ctx, s.Cache, string(owner.GetUID()), client.InNamespace(owner.GetNamespace()))
	if err != nil {
		return nil, fmt.Errorf("find the delivered Secrets: %w", err)
	}
	var found []metav1.ObjectMeta
	for _, secret := range secrets {
		if secret.DeletionTimestamp.IsZero() {
			found = append(found, *secret.ObjectMeta.DeepCopy())
		}
	}
	return found, nil
}

// Get returns the metadata of a Secret of any owner from the API server; nil: it does not exist.
func (s Secrets) Get(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	secret := Metadata()
	err := s.APIReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
	}
	return secret, nil
}

// Deliver creates the Secret, or replaces the version that was read. It fails if another owner has created one of that
// name. Labels and annotations of others stay, such as those of a replicator. A Secret that somebody has made immutable, or of another
// type, is deleted and created anew.
func (s Secrets) Deliver(ctx context.Context, owner client.Object, kind string, secret *corev1.Secret) error {
	secret.Labels = withEntry(secret.Labels, Label, kind)
	// Blocking the owner's deletion would need another right, and the finalizer makes it unnecessary.
	err := controllerutil.SetControllerReference(owner, secret, s.Client.Scheme(), controllerutil.WithBlockOwnerDeletion(false))
	switch {
	case err != nil:
	case secret.ResourceVersion == "":
		err = s.Client.Create(ctx, secret, client.FieldOwner(writes.FieldOwner))
	default:
		err = s.replace(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("deliver Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

// replace replaces the version that was read, and puts the version that it wrote into the Secret. It
// reads what others have in the metadata, which no other read of the operator has.
func (s Secrets) replace(ctx context.Context, secret *corev1.Secret) error {
	var existing corev1.Secret
	if err := s.APIReader.Get(kube.WholeMetadata(ctx), client.ObjectKeyFromObject(secret), &existing); err != nil {
		return err
	}
	if existing.UID != secret.UID || existing.ResourceVersion != secret.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, secret.Name, errors.New("it has changed since it was read"))
	}
	next := &corev1.Secret{ObjectMeta: existing.ObjectMeta, Type: secret.Type, Data: secret.Data}
	next.ManagedFields = nil
	maps.DeleteFunc(next.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.SchemeGroupVersion.Group+"/") })
	for key, value := range secret.Labels {
		next.Labels = withEntry(next.Labels, key, value)
	}
	for key, value := range secret.Annotations {
		next.Annotations = withEntry(next.Annotations, key, value)
	}
	err := s.Client.Update(ctx, next, client.FieldOwner(writes.FieldOwner))
	if immutable := existing.Immutable != nil && *existing.Immutable; apierrors.IsInvalid(err) && (immutable || existing.Type != secret.Type) {
		err = s.Delete(ctx, &existing, client.Preconditions{UID: &existing.UID, ResourceVersion: &existing.ResourceVersion})
		if err != nil {
			return err
		}
		next.ObjectMeta = metav1.ObjectMeta{
			Namespace: next.Namespace, Name: next.Name, Labels: next.Labels, Annotations: next.Annotations, OwnerReferences: secret.OwnerReferences,
		}
		err = s.Client.Create(ctx, next, client.FieldOwner(writes.FieldOwner))
	}
	secret.UID, secret.ResourceVersion, secret.CreationTimestamp = next.UID, next.ResourceVersion, next.CreationTimestamp
	return err
}

// MaxAtOnce is how many delivered Secrets one reconciliation reads from the API server, or deletes. A tenant who may write Secrets beside the
// owner can make more.
const MaxAtOnce = 16

// DeleteOwned deletes the first MaxAtOnce Secrets of these names, if they belong to the owner; more reports whether there are others. A Secret
// that lost its label and is not named is deleted through its owner reference. Whatever its tenant makes of it meanwhile, it goes.
func (s Secrets) DeleteOwned(ctx context.Context, owner client.Object, names []string) (more bool, err error) {
	for _, name := range names[:min(len(names), MaxAtOnce)] {
		secret, err := s.Get(ctx, owner.GetNamespace(), name)
		if err != nil {
			return false, err
		}
		if secret == nil || !OwnedBy(secret, owner.GetUID()) {
			continue
		}
		if err := s.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}); err != nil {
			return false, err
		}
	}
	return len(names) > MaxAtOnce, nil
}

// Delete deletes a Secret if the preconditions hold. A missing Secret is not an error.
func (s Secrets) Delete(ctx context.Context, secret metav1.Object, preconditions client.Preconditions) error {
	return writes.DeleteSecret(ctx, s.Client, secret.GetNamespace(), secret.GetName(), preconditions)
}

func withEntry(entries map[string]string, key, value string) map[string]string {
	out := maps.Clone(entries)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}
