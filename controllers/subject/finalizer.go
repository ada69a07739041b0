package subject

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// FieldOwner is the one field manager of everything the operator writes.
const FieldOwner = "merchant-operator"

// Hold makes sure that the object outlives its deletion until Release. It writes only what is missing. Added says that it was
// missing: then the object is as the API server has it now, and no operator had held it before.
func Hold[T object[T]](ctx context.Context, c client.Client, subject T) (added bool, err error) {
	return changeFinalizers(ctx, c, subject, "add", controllerutil.AddFinalizer)
}

// Release lets the deletion of the object finish. An object that is gone already is no error.
func Release[T object[T]](ctx context.Context, c client.Client, subject T) error {
	_, err := changeFinalizers(ctx, c, subject, "remove", controllerutil.RemoveFinalizer)
	return client.IgnoreNotFound(err)
}

type object[T any] interface {
	client.Object
	DeepCopy() T
}

// changeFinalizers patches only while nobody else has changed the object, for a patch replaces the
// whole list of finalizers.
func changeFinalizers[T object[T]](
	ctx context.Context, c client.Client, subject T, verb string, change func(client.Object, string) bool,
) (changed bool, err error) {
	before := subject.DeepCopy()
	if !change(subject, v1alpha1.Finalizer) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, subject, patch); err != nil {
		return false, fmt.Errorf("%s the finalizer: %w", verb, err)
	}
	return true, nil
}
