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

// signingLabel is the fixed beginning of a signing secret, by the Standard Webhooks specification.
const signingLabel = "whsec_"

// The sizes of a signing secret, in bytes. The specification allows 24 to 64.
const (
	signingSize    = 32
	minSigningSize = 24
	maxSigningSize = 64
)

// ErrMalformedSecret says that a string is no signing secret. It never quotes the string.
var ErrMalformedSecret = errors.New("not a well-formed signing secret")

// SigningSecret is what a merchant's events are signed with. Unlike an API key it must be kept, for
// the dispatcher signs with it. It prints as a fixed word and encodes as nothing, so that one which
// strays into a log or an error does not leak; Reveal and Key are the ways to it. The zero
// SigningSecret is no secret.
//
// The bytes are a string behind a pointer because fmt does not ask the methods of an unexported field:
// a struct that holds a SigningSecret then prints an address. It would follow a pointer to a slice.
type SigningSecret struct{ key *string }

// NewSigningSecret makes a fresh random secret of 32 bytes.
func NewSigningSecret() SigningSecret {
	key := make([]byte, signingSize)
	_, _ = rand.Read(key) // it never fails: the program ends rather
	return signingSecretOf(key)
}

// ParseSigningSecret reads "whsec_" and the standard base64 of 24 to 64 bytes. The error is
// ErrMalformedSecret whatever is wrong.
func ParseSigningSecret(s string) (SigningSecret, error) {
	encoded, labelled := strings.CutPrefix(s, signingLabel)
	if !labelled || strings.ContainsAny(encoded, "\r\n") { // which the decoder would skip
		return SigningSecret{}, ErrMalformedSecret
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) < minSigningSize || len(key) > maxSigningSize {
		return SigningSecret{}, ErrMalformedSecret
	}
	return signingSecretOf(key), nil
}

func signingSecretOf(key []byte) SigningSecret { return SigningSecret{new(string(key))} }

// Reveal returns the secret as it is delivered to the merchant, empty for the zero SigningSecret.
// Whoever calls it answers for where it goes.
func (s SigningSecret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return signingLabel + base64.StdEncoding.EncodeToString(s.Key())
}

// Key returns the bytes to sign with, none for the zero SigningSecret. Whoever calls it answers for
// where they go.
func (s SigningSecret) Key() []byte {
	if s.IsZero() {
		return nil
	}
	return []byte(*s.key)
}

// IsZero reports whether this is no secret.
func (s SigningSecret) IsZero() bool { return s.key == nil }

// Equal compares in constant time.
func (s SigningSecret) Equal(other SigningSecret) bool {
	if s.IsZero() || other.IsZero() {
		return s.IsZero() == other.IsZero()
	}
	return subtle.ConstantTimeCompare(s.Key(), other.Key()) == 1
}

// String never returns the secret, nor a part of it.
func (s SigningSecret) String() string {
	if s.IsZero() {
		return "no signing secret"
	}
	return "[signing secret]"
}

// Format keeps every verb of fmt from the secret, also %d and %#v, which String does not reach.
func (s SigningSecret) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, s.String()) }

// LogValue keeps slog's handlers from looking into the SigningSecret.
func (s SigningSecret) LogValue() slog.Value { return slog.StringValue(s.String()) }
