package published

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

// DigestClaim is the claim of an ApiKey to the digest of an externally generated key. Its name is derived from the
// digest, so of two concurrent creations one fails.
type DigestClaim struct {
	Version int           `json:"version"`
	Digest  apikey.Digest `json:"digest"`
	// Source is the owner, KeyID its key id.
	Source    Source    `json:"source"`
	KeyID     string    `json:"keyID"`
	ClaimedAt time.Time `json:"claimedAt"`
	// Replaced: another key has replaced that of the digest, over HTTP or before its ApiKey was deleted, so it must not be published
	// without a record.
	Replaced bool `json:"replaced,omitempty"`
}

// digestNameLength is in characters: 130 bits of a hash.
const digestNameLength = 26

// DigestClaimName returns the name of the Secret with the claim to a digest. It is a hash of the digest, because
// names appear in logs.
func DigestClaimName(digest apikey.Digest) string {
	sum := sha256.Sum256(digest[:])
	return digestPrefix + idEncoding.EncodeToString(sum[:])[:digestNameLength]
}

// EncodeDigestClaim returns the Secret of a claim. The error for an invalid claim is ErrInvalid.
func EncodeDigestClaim(namespace string, claim DigestClaim) (*corev1.Secret, error) {
	claim.Version = recordVersion
	if err := claim.validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(claim)
	if err != nil { // a time beyond the year 9999
		return nil, invalid("encode digest claim: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      DigestClaimName(claim.Digest),
			Labels:    map[string]string{Label: LabelDigest},
		},
		Type: DigestSecretType,
		Data: map[string][]byte{claimData: data},
	}, nil
}

// DecodeDigestClaim reads a claim. Any error wraps ErrInvalid.
func DecodeDigestClaim(secret *corev1.Secret) (DigestClaim, error) {
	var claim DigestClaim
	if secret.Type != DigestSecretType {
		return DigestClaim{}, invalid("the Secret is not of type %s", DigestSecretType)
	}
	if err := decode(secret.Data[claimData], &claim, &claim.Version); err != nil {
		return DigestClaim{}, err
	}
	if err := claim.validate(); err != nil {
		return DigestClaim{}, err
	}
	if secret.Name != DigestClaimName(claim.Digest) {
		return DigestClaim{}, invalid("digest does not match the Secret's name")
	}
	return claim, nil
}

// validate refuses a claim without an owner.
func (c DigestClaim) validate() error {
	switch {
	case c.Digest.IsZero():
		return invalid("digest is missing")
	case c.Source.incomplete():
		return invalid("source is incomplete")
	case !ValidID(c.KeyID):
		return invalid("keyID is not an id")
	case c.ClaimedAt.IsZero():
		return invalid("claimedAt is missing")
	}
	return nil
}
