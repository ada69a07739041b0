package reconciler

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// addFinalizer adds the finalizer if it is missing. Then added is true, the object is current, and no operator has
// worked on it before.
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

// patchFinalizers replaces the whole list, so it writes only if the object has not changed.
func patchFinalizers(ctx context.Context, b *Base, before, after client.Object) error {
	return b.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// withdraw deletes everything that was written for the object, and then removes the finalizer.
func withdraw[T any, O Object[T], P any](ctx context.Context, b *Base, object O, steps Steps[O, P]) error {
	if !controllerutil.ContainsFinalizer(object, v1alpha1.Finalizer) {
		return nil
	}
	if err := steps.Withdraw(ctx, object); err != nil {
		return err
	}
	return client.IgnoreNotFound(removeFinalizer(ctx, b, object))
}
