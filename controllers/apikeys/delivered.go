package apikeys

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// GenerationAnnotation says which generation of the key a delivered Secret holds.
const GenerationAnnotation = "merchant-operator.io/generation"

// The data keys of a delivered Secret.
const (
	dataAPIKey = "apiKey"
	dataKeyID  = "keyID"
	dataPrefix = "prefix"
)

// delivered is the metadata of a delivered Secret.
type delivered struct{ metav1.ObjectMeta }

// generation is of the key the Secret holds; 0: it does not tell.
func (d delivered) generation() int64 {
	generation, err := strconv.ParseInt(d.Annotations[GenerationAnnotation], 10, 64)
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
