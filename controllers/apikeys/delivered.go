package apikeys

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// What marks a delivered Secret, beside the owner reference that makes it an ApiKey's. They are its
// only label and annotation: the ApiKey's own would make a GitOps tool take the Secret for its own.
const (
	deliveredLabel       = "merchant-operator.io/delivered"
	deliveredKey         = "key"
	generationAnnotation = "merchant-operator.io/generation"
)

// The data keys of a delivered Secret.
const (
	dataAPIKey = "apiKey"
	dataKeyID  = "keyID"
	dataPrefix = "prefix"
)

// DeliveredSelector selects the delivered Secrets, for the cache of their metadata.
func DeliveredSelector() labels.Selector {
	return labels.SelectorFromSet(labels.Set{deliveredLabel: deliveredKey})
}

// delivered is the metadata of a delivered Secret.
type delivered struct{ metav1.ObjectMeta }

// generation is of the key the Secret holds; 0: it does not tell.
func (d delivered) generation() int64 {
	generation, err := strconv.ParseInt(d.Annotations[generationAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// holds reports whether the Secret holds the key in force. A key made by a rotation over HTTP is in
// no Secret, whatever the annotation says: a rotation that lost its race against that one had
// delivered under the same generation.
func (d delivered) holds(record published.KeyRecord) bool {
	return d.generation() == record.Generation && record.LastRotation.Cause != v1alpha1.RotationAPI
}

// ownedBy reports whether the object is that ApiKey's, by its controller's UID.
func ownedBy(object metav1.Object, uid types.UID) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == uid
}
