// Package published is the contract between the operator and the data plane: the objects of the credentials namespace. The operator writes
// them, the API and the dispatcher read them; the API also writes keys that it issues and their claims, the dispatcher the last uses.
//
// It has their names, labels, encoding and validation, and the rotation of records. Records have a version: a reader
// refuses a newer one with ErrNewerVersion, and ignores unknown fields.
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

// Label marks every published object; its value is the kind.
const Label = "merchant-operator.io/published"

// Values of Label.
const (
	LabelKey      = "key"
	LabelMerchant = "merchant"
	LabelWebhook  = "webhook"
	// LabelTombstone marks a Tombstone, LabelDigest a DigestClaim.
	LabelTombstone = "tombstone"
	LabelDigest    = "digest"
	// LabelLastUse is of the ConfigMaps with the last uses of keys.
	LabelLastUse = "last-use"
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
	lastUsePrefix  = "last-uses-"

	keyTombstonePrefix      = "tombstone-key-"
	merchantTombstonePrefix = "tombstone-merchant-"

	keyData       = "record.json"
	merchantData  = "merchant.json"
	webhookData   = "webhook.json"
	tombstoneData = "tombstone.json"
	claimData     = "claim.json"
	lastUseData   = "uses.json"

	// recordVersion is the version of all records. It increases only if an older reader would misread a record.
	recordVersion = 1
)

// KeyName returns the name of the Secret of a key id.
func KeyName(keyID string) string { return keyPrefix + keyID }

// KeyID returns the key id of a Secret name; it shares its memory.
func KeyID(name string) string { return strings.TrimPrefix(name, keyPrefix) }

// MerchantName returns the name of the ConfigMap of a merchant id.
func MerchantName(merchantID string) string { return merchantPrefix + merchantID }

// MerchantID returns the merchant id of a ConfigMap name; it shares its memory.
func MerchantID(name string) string { return strings.TrimPrefix(name, merchantPrefix) }

// WebhookName returns the name of the Secret with the signing secrets of a merchant id.
func WebhookName(merchantID string) string { return webhookPrefix + merchantID }

// KeyTombstoneName returns the name of the ConfigMap with the tombstone of a key id.
func KeyTombstoneName(keyID string) string { return keyTombstonePrefix + keyID }

// MerchantTombstoneName returns the name of the ConfigMap with the tombstone of a merchant id.
func MerchantTombstoneName(merchantID string) string { return merchantTombstonePrefix + merchantID }

// TombstoneSubject returns what a tombstone's name says of it: the kind and the id of the deleted object. ok is false if it is not the
// name of a tombstone. The id shares its memory.
func TombstoneSubject(name string) (kind TombstoneKind, id string, ok bool) {
	if id, ok = strings.CutPrefix(name, keyTombstonePrefix); ok {
		return TombstoneApiKey, id, ValidID(id)
	}
	id, ok = strings.CutPrefix(name, merchantTombstonePrefix)
	return TombstoneMerchant, id, ok && ValidID(id)
}

// decode reads a record of this package's version; version points to its Version.
func decode(data []byte, record any, version *int) error {
	if len(data) == 0 {
		return invalid("the record is missing")
	}
	err := unmarshal(data, record)
	if err == nil && *version == recordVersion {
		return nil
	}
	// A newer record may have another shape, so read the version alone.
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

// unmarshal reports where a text is invalid. It drops the decoder's error, which quotes the text.
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

// ErrInvalid is wrapped by every error about an unusable published object. The error names the field, never its
// value.
var ErrInvalid = errors.New("invalid published object")

// ErrNewerVersion is wrapped, with ErrInvalid, if a newer program wrote the object. Such an object must not be
// replaced.
var ErrNewerVersion = errors.New("written by a newer version")

var errNewer = fmt.Errorf("%w: %w", ErrInvalid, ErrNewerVersion)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// idLength is in characters; 60 bits of a hash distinguish a million objects.
const idLength = 12

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ID returns the id of an object in the data plane: 12 characters of lower-case base32 of the SHA-256 of its UID, or the next 12 if
// they begin with "test", as only ids of test mode do. A restarted operator finds its objects by it, and a recreated object has another
// id.
func ID(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	text := idEncoding.EncodeToString(sum[:])
	if strings.HasPrefix(text, "test") {
		text = text[idLength:]
	}
	return text[:idLength]
}

// PublicMerchantID returns a merchant's id as callers of the API see it.
func PublicMerchantID(id string) string { return "mer_" + id }

// ValidID reports whether a string has the form of a key id or a merchant id.
func ValidID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}
