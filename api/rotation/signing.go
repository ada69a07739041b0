package rotation

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// SigningPath is the route of a new signing secret, and literally the path of its SubjectAccessReview.
const SigningPath = "/internal/v1/merchants/{merchantID}/signing-secret"

// SigningPathFor returns the path for one merchant id.
func SigningPathFor(merchantID string) string {
	return strings.Replace(SigningPath, "{merchantID}", merchantID, 1)
}

// SigningTrigger is the spec.webhook.rotationTrigger of a rotation whose secret is asked for with the nonce. Everybody who may read the Merchant
// sees the trigger, and cannot compute the nonce.
func SigningTrigger(nonce string) string {
	digest := sha256.Sum256([]byte(nonce))
	return "sha256:" + base64.RawURLEncoding.EncodeToString(digest[:])
}

// SigningRequest asks for the signing secret that its trigger has made.
type SigningRequest struct {
	// Namespace, Name and UID are those of the Merchant. The apiserver compares them with the source of the published record.
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`

	// Nonce is what SigningTrigger was made of: 22 to 128 characters that nobody can guess.
	Nonce string `json:"nonce"`
	// Actor is who asks for it.
	Actor string `json:"actor"`
}

// SigningSecret is the answer with the new secret.
type SigningSecret struct {
	Secret string `json:"secret"`
	// PreviousValidUntil is until when events are signed with the former secret too, in Unix milliseconds; absent: they are not.
	PreviousValidUntil *int64 `json:"previousValidUntil,omitempty"`
}
