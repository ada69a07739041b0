package published

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Label marks every published object; its value says which kind it is.
const Label = "merchant-operator.io/published"

// Values of Label.
const (
	LabelKey      = "key"
	LabelMerchant = "merchant"
)

// KeySecretType is the type of a published key's Secret.
const KeySecretType corev1.SecretType = "merchant-operator.io/api-key"

const (
	keyPrefix      = "key-"
	merchantPrefix = "merchant-"

	keyData      = "record.json"
	merchantData = "merchant.json"

	// recordVersion is of both records. It rises only when an older reader would misread.
	recordVersion = 1

	// maxRecordBytes bounds what a reader decodes; a record of this package is far smaller.
	maxRecordBytes = 64 << 10
)

// ErrInvalid is wrapped by every error that says a published object cannot be used as it is.
var ErrInvalid = errors.New("invalid published object")

// KeyName is the name of the Secret of a key id.
func KeyName(keyID string) string { return keyPrefix + keyID }

// MerchantName is the name of the ConfigMap of a merchant id.
func MerchantName(merchantID string) string { return merchantPrefix + merchantID }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// decode reads one record and its version. It reports where a record is wrong, never what it holds.
func decode(data []byte, record any, version *int) error {
	if len(data) == 0 {
		return invalid("the record is missing")
	}
	if len(data) > maxRecordBytes {
		return invalid("the record has %d bytes, at most %d are read", len(data), maxRecordBytes)
	}
	if err := json.Unmarshal(data, record); err != nil {
		var typeError *json.UnmarshalTypeError
		if errors.As(err, &typeError) {
			return invalid("field %s has the wrong type", typeError.Field)
		}
		return invalid("the record is not valid JSON of its kind")
	}
	if *version != recordVersion {
		return invalid("version %d, this program reads version %d", *version, recordVersion)
	}
	return nil
}
