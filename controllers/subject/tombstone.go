package subject

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// WriteTombstone says in the credentials namespace that an object has ended. One that says so already
// stays as it is. Nothing is written into a namespace that is being deleted: nobody reads it again.
func WriteTombstone(ctx context.Context, c client.Client, live client.Reader, namespace string, tombstone published.Tombstone) error {
	want, err := published.EncodeTombstone(namespace, tombstone)
	if err != nil {
		return fmt.Errorf("write the tombstone of %s %s: %w", tombstone.Kind, tombstone.ID, err)
	}
	err = c.Create(ctx, want, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		err = repairTombstone(ctx, c, live, want)
	}
	if err != nil && !namespaceGone(err) {
		return fmt.Errorf("write the tombstone %s: %w", want.Name, err)
	}
	return nil
}

func repairTombstone(ctx context.Context, c client.Client, live client.Reader, want *corev1.ConfigMap) error {
	existing := new(corev1.ConfigMap)
	if err := live.Get(ctx, client.ObjectKeyFromObject(want), existing); err != nil {
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
	want.UID, want.ResourceVersion = existing.UID, existing.ResourceVersion
	return Write(ctx, c, want)
}

func namespaceGone(err error) bool {
	var status apierrors.APIStatus
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		apierrors.IsNotFound(err) && errors.As(err, &status) &&
			status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}
