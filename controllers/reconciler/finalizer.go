package reconciler

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
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

// RemoveFinalizer ends the work on a deleted object. It reads the finalizers from the API server, and replaces that version only.
func (b *Base) RemoveFinalizer(ctx context.Context, object client.Object) error {
	b.failures.note(object, false, b.Clock.Now())
	if !controllerutil.ContainsFinalizer(object, v1alpha1.Finalizer) {
		return nil // none can be added to an object that is being deleted
	}
	kind, err := apiutil.GVKForObject(object, b.Client.Scheme())
	if err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(kind)
	if err := b.APIReader.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("remove the finalizer: %w", err))
	}
	before := live.DeepCopy()
	if live.UID != object.GetUID() || !controllerutil.RemoveFinalizer(live, v1alpha1.Finalizer) {
		return nil
	}
	if err := b.Client.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("remove the finalizer: %w", err))
	}
	return nil
}
