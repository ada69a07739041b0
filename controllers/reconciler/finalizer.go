package reconciler

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// addFinalizer makes sure that the object outlives its deletion until removeFinalizer. If it was missing (added), the
// object is now as the API server has it, and no operator held it before.
func addFinalizer[T any, O Object[T]](ctx context.Context, b *Base, object O) (added bool, err error) {
	before := O(object.DeepCopy())
	if !controllerutil.AddFinalizer(object, v1alpha1.Finalizer) {
		return false, nil
	}
	if err := patchFinalizers(ctx, b, before, object); err != nil {
		return false, fmt.Errorf("add the finalizer: %w", err)
	}
	b.Wrote(object, object.GetResourceVersion())
	return true, nil
}

func removeFinalizer[T any, O Object[T]](ctx context.Context, b *Base, object O) error {
	before := O(object.DeepCopy())
	if !controllerutil.RemoveFinalizer(object, v1alpha1.Finalizer) {
		return nil
	}
	if err := patchFinalizers(ctx, b, before, object); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// patchFinalizers writes only while nobody else has changed the object, for a patch replaces the whole list.
func patchFinalizers(ctx context.Context, b *Base, before, after client.Object) error {
	return b.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// withdraw lets the deletion finish once nothing is left of what was written for the object.
func withdraw[T any, O Object[T], P any](ctx context.Context, b *Base, object O, steps Steps[O, P]) error {
	if !controllerutil.ContainsFinalizer(object, v1alpha1.Finalizer) {
		return nil
	}
	if err := steps.Withdraw(ctx, object); err != nil {
		return err
	}
	return client.IgnoreNotFound(removeFinalizer(ctx, b, object))
}
