package deliveries

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Label marks a delivered Secret, beside the owner reference that says whose it is; its value says
// what is in it. It is the Secret's only label: its owner's own ones would make a GitOps tool take the
// Secret for its own.
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

// OwnedBy reports whether the object is that owner's, by its controller's UID.
func OwnedBy(object metav1.Object, uid types.UID) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == uid
}

// ownerIndex finds the delivered Secrets of an owner by its UID, whatever their names.
const ownerIndex = "metadata.controller.uid"

// Index lets Of find Secrets in the cache.
func Index(ctx context.Context, cache client.FieldIndexer) error {
	if err := cache.IndexField(ctx, Metadata(), ownerIndex, ownerUID); err != nil {
		return fmt.Errorf("index delivered Secrets: %w", err)
	}
	return nil
}

func ownerUID(object client.Object) []string {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return nil
	}
	return []string{string(owner.UID)}
}

// Metadata asks for a Secret without its data.
func Metadata() *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return metadata
}
