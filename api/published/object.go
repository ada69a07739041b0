// Package published is the contract between the operator and the data plane: the objects the
// operator writes into the credentials namespace and the API reads from it.
//
// A key is a Secret key-<key id> with a KeyRecord; a merchant is a ConfigMap merchant-<id> with a
// MerchantRecord; what its events are signed with is a Secret webhook-<id> with a WebhookRecord. The
// end of a key or merchant is a ConfigMap tombstone-key-<key id> or tombstone-merchant-<id> with a
// Tombstone. The claim to the digest of an externally generated key is a Secret digest-<hash> with a
// DigestClaim. The package owns their names, labels, encoding and checks, and what a rotation does to
// a record. Records carry a version: a reader refuses a newer one with ErrNewerVersion rather than
// guess, and ignores fields it does not know.
package published

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Label marks every published object; its value says which kind it is.
const Label = "merchant-operator.io/published"

// Values of Label.
const (
	LabelKey      = "key"
	LabelMerchant = "merchant"
	LabelWebhook  = "webhook"
	// LabelTombstone is of a Tombstone, LabelDigest of a DigestClaim.
	LabelTombstone = "tombstone"
	LabelDigest    = "digest"
)

// The types of published Secrets.
const (
	KeySecretType     corev1.SecretType = "merchant-operator.io/api-key"
	WebhookSecretType corev1.SecretType = "merchant-operator.io/webhook"
	DigestSecretType  corev1.SecretType = "merchant-operator.io/digest"
)

const (
	keyPrefix      = "key-"
	merchantPrefix = "merchant-"
	webhookPrefix  = "webhook-"
	digestPrefix   = "digest-"

	keyTombstonePrefix      = "tombstone-key-"
	merchantTombstonePrefix = "tombstone-merchant-"

	keyData       = "record.json"
	merchantData  = "merchant.json"
	webhookData   = "webhook.json"
	tombstoneData = "tombstone.json"
	claimData     = "claim.json"

	// recordVersion is of all records. It rises only when an older reader would misread.
	recordVersion = 1
)

// KeyName is the name of the Secret of a key id.
func KeyName(keyID string) string { return keyPrefix + keyID }

// KeyID is the key id of the Secret of that name; it shares its memory.
func KeyID(name string) string { return strings.TrimPrefix(name, keyPrefix) }

// MerchantName is the name of the ConfigMap of a merchant id.
func MerchantName(merchantID string) string { return merchantPrefix + merchantID }

// MerchantID is the merchant id of the ConfigMap of that name; it shares its memory.
func MerchantID(name string) string { return strings.TrimPrefix(name, merchantPrefix) }

// WebhookName is the name of the Secret that a merchant id's events are signed with.
func WebhookName(merchantID string) string { return webhookPrefix + merchantID }

// KeyTombstoneName is the name of the ConfigMap that remembers the end of a key id.
func KeyTombstoneName(keyID string) string { return keyTombstonePrefix + keyID }

// TombstoneKeyID is the key id of the tombstone of that name.
func TombstoneKeyID(name string) string { return strings.TrimPrefix(name, keyTombstonePrefix) }

// MerchantTombstoneName is the name of the ConfigMap that remembers the end of a merchant id.
func MerchantTombstoneName(merchantID string) string { return merchantTombstonePrefix + merchantID }

// decode reads one record of this package's version, which is where the record's own Version is.
func decode(data []byte, record any, version *int) error {
	if len(data) == 0 {
		return invalid("the record is missing")
	}
	err := unmarshal(data, record)
	if err == nil && *version == recordVersion {
		return nil
	}
	// What is wrong with it may be the version alone, for a newer record may have any other shape.
	var header struct {
		Version int `json:"version"`
	}
	if err := unmarshal(data, &header); err != nil {
		return err
	}
	if header.Version > recordVersion {
		return fmt.Errorf("%w: version %d, this program reads version %d", errNewer, header.Version, recordVersion)
	}
	if header.Version != recordVersion {
		return invalid("version %d, this program reads version %d", header.Version, recordVersion)
	}
	return err
}

// unmarshal says where a text is wrong. It drops the decoder's own error, which quotes the text.
func unmarshal(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	var typeError *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typeError) && typeError.Field != "":
		return invalid("field %s has the wrong type", typeError.Field)
	default:
		return invalid("the record is not valid JSON of its kind")
	}
}

// ErrInvalid is wrapped by every error that says a published object cannot be used as it is. Such
// an error says which field is wrong, never what it holds.
var ErrInvalid = errors.New("invalid published object")

// ErrNewerVersion is wrapped, beside ErrInvalid, when the object was written by a newer program. It is
// left as it is: to replace it would undo what the newer program knows.
var ErrNewerVersion = errors.New("written by a newer version")

var errNewer = fmt.Errorf("%w: %w", ErrInvalid, ErrNewerVersion)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// idLength is in characters; 60 bits of a hash keep a million objects apart.
const idLength = 12

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ID returns the identity the data plane knows an object by: 12 characters of lower-case base32 of
// the SHA-256 of its UID. A restarted operator finds what it made by it, and an object that was
// deleted and created again is another one.
func ID(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return idEncoding.EncodeToString(sum[:])[:idLength]
}

// PublicMerchantID is a merchant's id as people and callers of the API see it.
func PublicMerchantID(id string) string { return "mer_" + id }

func validID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}
