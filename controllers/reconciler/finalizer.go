package reconciler

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// AddFinalizer adds the finalizer if it is missing. Then added is true, and the object is current. It is applied as one member of the set,
// because the cache does not hold the finalizers of others.
func (b *Base) AddFinalizer(ctx context.Context, object client.Object) (added bool, err error) {
	if controllerutil.ContainsFinalizer(object, v1alpha1.Finalizer) {
		return false, nil
	}
	kind, err := apiutil.GVKForObject(object, b.Client.Scheme())
	if err != nil {
		return false, fmt.Errorf("add the finalizer: %w", err)
	}
	apply := &unstructured.Unstructured{}
	apply.SetGroupVersionKind(kind)
	apply.SetNamespace(object.GetNamespace())
	apply.SetName(object.GetName())
	apply.SetUID(object.GetUID()) // an apply without it would create a missing object
	apply.SetResourceVersion(object.GetResourceVersion())
	apply.SetFinalizers([]string{v1alpha1.Finalizer})
	err = b.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.ForceOwnership, client.FieldOwner(writes.FieldOwner))
	if err != nil {
		return false, fmt.Errorf("add the finalizer: %w", err)
	}
	object.SetFinalizers(apply.GetFinalizers())
	object.SetResourceVersion(apply.GetResourceVersion())
	b.Wrote(object, apply.GetResourceVersion())
	return true, nil
}

// HeldRecheck is how often a deleted object that keeps its finalizer is looked at again: tombstones expire after days.
const HeldRecheck = time.Hour

// Release removes the finalizer of a deleted object, which is revoked and remembered. It reports whether the finalizer stays instead: there
// are too many tombstones that cannot be forgotten. Whoever goes on creating and deleting objects then meets the quota of its namespace.
func (b *Base) Release(ctx context.Context, kind published.TombstoneKind, object client.Object) (held bool, err error) {
	if controllerutil.ContainsFinalizer(object, v1alpha1.Finalizer) {
		held, err = b.Tombstones.Holds(ctx, kind, object, b.Clock.Now())
	}
	if err != nil || held {
		return held, err
	}
	return false, b.RemoveFinalizer(ctx, object)
}

// Held is the outcome for a deleted object that keeps its finalizer. Whose is the subject of the message.
func Held(whose string) conditions.Outcome {
	return conditions.Waiting(v1alpha1.ReasonTooManyDeleted,
		"%s is revoked, and its deletion is remembered. The object goes when older deletions are forgotten, %d days after each: "+
			"too many objects were created and deleted in this namespace. To remove the finalizer %s by hand loses nothing",
		whose, retentionDays, v1alpha1.Finalizer)
}

// FullUntil returns until when nothing of an object of which nothing exists is published, because too many objects of its namespace were deleted;
// zero: it is published. What was published before and is lost, as the status says that an operator before this one has written, is published again.
func (b *Base) FullUntil(
	ctx context.Context, kind published.TombstoneKind, object client.Object, status []metav1.Condition, now time.Time,
) (time.Time, error) {
	ready := meta.FindStatusCondition(status, v1alpha1.ReadyCondition)
	if ready != nil && ready.Reason != v1alpha1.ReasonTooManyDeleted && !b.Younger(object) {
		return time.Time{}, nil
	}
	return b.Tombstones.Full(ctx, kind, object.GetNamespace(), now)
}

// Full is the outcome for such an object. The subject of the message is what.
func Full(what string, until time.Time) conditions.Outcome {
	return conditions.Stalled(v1alpha1.ReasonTooManyDeleted,
		"%s is not published until %s: too many %ss that cannot be forgotten were deleted in this namespace, each within the last %d days. "+
			"Change objects that exist instead of deleting them, or use another namespace",
		what, until.Format(time.RFC3339), what, retentionDays)
}

// retentionDays is how long a deletion is remembered.
const retentionDays = int(published.TombstoneRetention / (24 * time.Hour))

// RemoveFinalizer ends the work on a deleted object. It reads the finalizers from the API server, and
// removes one of that version only: those of others, which may be a megabyte, are not sent back.
func (b *Base) RemoveFinalizer(ctx context.Context, object client.Object) error {
	b.failures.note(object, false, b.Clock.Now())
	if !controllerutil.ContainsFinalizer(object, v1alpha1.Finalizer) {
		return nil // none can be added to an object that is being deleted
	}
	kind, err := apiutil.GVKForObject(object, b.Client.Scheme())
	if err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	uncached := &metav1.PartialObjectMetadata{}
	uncached.SetGroupVersionKind(kind)
	if err := b.APIReader.Get(kube.WholeMetadata(ctx), client.ObjectKeyFromObject(object), uncached); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("remove the finalizer: %w", err))
	}
	index := slices.Index(uncached.Finalizers, v1alpha1.Finalizer)
	if uncached.UID != object.GetUID() || index < 0 {
		return nil
	}
	patch := fmt.Appendf(nil, `[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"remove","path":"/metadata/finalizers/%d"}]`,
		uncached.ResourceVersion, index)
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}}
	written.SetGroupVersionKind(kind)
	err = b.Client.Patch(ctx, written, client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsInvalid(err) { // the test failed: another version is there
		err = apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, object.GetName(), err)
	}
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("remove the finalizer: %w", err))
	}
	return nil
}
