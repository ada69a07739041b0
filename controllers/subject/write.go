package subject

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Write creates an object, or updates the version of it that was read.
func Write(ctx context.Context, c client.Client, object client.Object) error {
	if object.GetResourceVersion() == "" {
		return c.Create(ctx, object, client.FieldOwner(FieldOwner))
	}
	return c.Update(ctx, object, client.FieldOwner(FieldOwner))
}

// SwapSecret writes a published Secret in place of what was read: nothing, or exactly that version.
func SwapSecret(ctx context.Context, c client.Client, read, want *corev1.Secret) error {
	switch {
	case read == nil:
	case read.Type == want.Type:
		want.UID, want.ResourceVersion = read.UID, read.ResourceVersion
	default: // a type cannot be changed, and a record of another type was none
		err := DeleteSecret(ctx, c, read.Namespace, read.Name, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion})
		if err != nil {
			return err
		}
	}
	return Write(ctx, c, want)
}

// DeleteSecret deletes a Secret that keeps the preconditions. One that is gone already is no error.
func DeleteSecret(ctx context.Context, c client.Client, namespace, name string, preconditions client.Preconditions) error {
	secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := client.IgnoreNotFound(c.Delete(ctx, secret, preconditions)); err != nil {
		return fmt.Errorf("delete Secret %s: %w", types.NamespacedName{Namespace: namespace, Name: name}, err)
	}
	return nil
}
