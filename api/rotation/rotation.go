// Package rotation is the contract of the internal port for those who issue keys and signing secrets, and ask which keys are accepted: the console
// and portals send a request, and the apiserver answers.
package rotation

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Path is the route, and literally the path of its SubjectAccessReview.
const Path = "/internal/v1/keys/{keyID}/rotate"

// PathFor returns the path for one key id.
func PathFor(keyID string) string { return strings.Replace(Path, "{keyID}", keyID, 1) }

// Request asks to replace the key of an ApiKey.
type Request struct {
	// Namespace, Name and UID are those of the ApiKey. A key id alone is public, so the apiserver compares them with the source of the
	// published record.
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`

	ExpectedGeneration int64 `json:"expectedGeneration"`
	OverlapSeconds     int64 `json:"overlapSeconds"`
	// Actor is who asks for it.
	Actor string `json:"actor"`
}

// Issued is the answer with the new key.
type Issued struct {
	KeyID      string `json:"keyID"`
	Generation int64  `json:"generation"`
	FullKey    string `json:"fullKey"`
	Prefix     string `json:"prefix"`
	// PreviousValidUntil is when the last old key ends, in Unix milliseconds; absent: all have ended.
	PreviousValidUntil *int64 `json:"previousValidUntil,omitempty"`
}

// Conflict is the answer if the key has another generation.
type Conflict struct {
	Error      string `json:"error"`
	Generation int64  `json:"generation"`
}
