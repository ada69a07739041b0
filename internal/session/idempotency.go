package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

const maxIdempotencyKeyLength = 255

// ErrMalformedIdempotencyKey says that a header does not hold an Idempotency-Key.
var ErrMalformedIdempotencyKey = errors.New("must be 1 to 255 visible ASCII characters, bare or in double quotes")

// IdempotencyKey names one attempt to charge, chosen by the merchant and repeated with each retry.
// The zero IdempotencyKey is none.
type IdempotencyKey struct{ value string }

// ParseIdempotencyKey reads the value of the header, surrounding spaces already removed: 1 to 255
// visible ASCII characters, bare, or in double quotes that are not part of the key (the structured
// string of draft-ietf-httpapi-idempotency-key-header). Inside quotes, quotes and backslashes are
// refused rather than unescaped, so that no key has two spellings. The error is
// ErrMalformedIdempotencyKey, also for an empty header.
func ParseIdempotencyKey(header string) (IdempotencyKey, error) {
	value := header
	if strings.HasPrefix(header, `"`) {
		inner, closed := strings.CutSuffix(header[1:], `"`)
		if !closed || strings.ContainsAny(inner, `"\`) {
			return IdempotencyKey{}, ErrMalformedIdempotencyKey
		}
		value = inner
	}
	if value == "" || len(value) > maxIdempotencyKeyLength {
		return IdempotencyKey{}, ErrMalformedIdempotencyKey
	}
	for i := range len(value) {
		if value[i] <= ' ' || value[i] > '~' {
			return IdempotencyKey{}, ErrMalformedIdempotencyKey
		}
	}
	return IdempotencyKey{value}, nil
}

// IsZero reports whether there is no key.
func (k IdempotencyKey) IsZero() bool { return k.value == "" }

// Hash returns the SHA-256 of the key as 64 lower-case hex digits, and the empty string for none.
// It is what is stored: merchants put order numbers and worse into these keys.
func (k IdempotencyKey) Hash() string {
	if k.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(k.value))
	return hex.EncodeToString(sum[:])
}
