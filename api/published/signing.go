package published

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// signingLabel is the prefix of a signing secret in the Standard Webhooks specification.
const signingLabel = "whsec_"

// Sizes of a signing secret, in bytes. The specification allows 24 to 64.
const (
	signingSize    = 32
	minSigningSize = 24
	maxSigningSize = 64
)

// ErrMalformedSecret means that the string is not a signing secret. The error never quotes the string.
var ErrMalformedSecret = errors.New("not a well-formed signing secret")

// SigningSecret signs the events of a merchant. Unlike an API key it is stored. It prints as a fixed word and encodes
// as nothing, so that it does not leak into a log or an error; only Reveal and Key return it. The zero SigningSecret
// is no secret.
//
// The bytes are a string behind a pointer because fmt does not call methods of unexported fields; it then prints an
// address.
type SigningSecret struct{ key *string }

// NewSigningSecret generates a random secret of 32 bytes.
func NewSigningSecret() SigningSecret {
	key := make([]byte, signingSize)
	_, _ = rand.Read(key) // it never fails: the program ends rather
	return SigningSecret{new(string(key))}
}

// ParseSigningSecret reads "whsec_" and the standard base64 of 24 to 64 bytes. The error is always
// ErrMalformedSecret.
func ParseSigningSecret(s string) (SigningSecret, error) {
	encoded, labelled := strings.CutPrefix(s, signingLabel)
	if !labelled || strings.ContainsAny(encoded, "\r\n") { // which the decoder would skip
		return SigningSecret{}, ErrMalformedSecret
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) < minSigningSize || len(key) > maxSigningSize {
		return SigningSecret{}, ErrMalformedSecret
	}
	return SigningSecret{new(string(key))}, nil
}

// Reveal returns the secret in the form that is delivered to the merchant, empty for the zero SigningSecret. The
// caller must not log it.
func (s SigningSecret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return signingLabel + base64.StdEncoding.EncodeToString(s.Key())
}

// Key returns the bytes to sign with, none for the zero SigningSecret. The caller must not log them.
func (s SigningSecret) Key() []byte {
	if s.IsZero() {
		return nil
	}
	return []byte(*s.key)
}

// IsZero reports whether there is no secret.
func (s SigningSecret) IsZero() bool { return s.key == nil }

// Equal compares in constant time.
func (s SigningSecret) Equal(other SigningSecret) bool {
	if s.IsZero() || other.IsZero() {
		return s.IsZero() == other.IsZero()
	}
	return subtle.ConstantTimeCompare(s.Key(), other.Key()) == 1
}

// String never returns any part of the secret.
func (s SigningSecret) String() string {
	if s.IsZero() {
		return "no signing secret"
	}
	return "[signing secret]"
}

// Format hides the secret from every verb of fmt, also %d and %#v, which do not call String.
func (s SigningSecret) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, s.String()) }

// LogValue hides the content of the SigningSecret from slog's handlers.
func (s SigningSecret) LogValue() slog.Value { return slog.StringValue(s.String()) }
