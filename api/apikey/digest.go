package apikey

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Digest is the SHA-256 of a whole API key string. A key has 190 random bits, so one fast hash is
// enough: there is no dictionary to walk.
type Digest [sha256.Size]byte

// ErrBadDigest says that a text is not 64 lower-case hex digits.
var ErrBadDigest = errors.New("not a SHA-256 digest of 64 lower-case hex digits")

// DigestOf returns the digest of the key a caller presented.
func DigestOf(presented string) Digest {
	// A copy on the stack; a conversion of more than 32 bytes would be one on the heap, with each request.
	var copied [MaxLength]byte
	if len(presented) > len(copied) {
		return sha256.Sum256([]byte(presented))
	}
	return sha256.Sum256(copied[:copy(copied[:], presented)])
}

// ParseDigest reads 64 lower-case hex digits; the error is ErrBadDigest.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if err := d.UnmarshalText([]byte(s)); err != nil {
		return Digest{}, err
	}
	return d, nil
}

// Hex returns the digest as 64 lower-case hex digits.
func (d Digest) Hex() string { return hex.EncodeToString(d[:]) }

// Equal compares in constant time.
func (d Digest) Equal(other Digest) bool { return subtle.ConstantTimeCompare(d[:], other[:]) == 1 }

// IsZero reports whether no digest was set.
func (d Digest) IsZero() bool { return d == Digest{} }

// MarshalText writes the digest as lower-case hex, for published records.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.Hex()), nil }

// UnmarshalText reads lower-case hex; the error is ErrBadDigest.
func (d *Digest) UnmarshalText(text []byte) error {
	var parsed Digest
	if len(text) != hex.EncodedLen(len(parsed)) {
		return ErrBadDigest
	}
	for _, c := range text {
		if c >= 'A' && c <= 'F' { // one digest has one spelling
			return ErrBadDigest
		}
	}
	if _, err := hex.Decode(parsed[:], text); err != nil {
		return ErrBadDigest
	}
	*d = parsed
	return nil
}

// String keeps digests out of logs and messages; Hex is the way to the value.
func (d Digest) String() string { return "[digest]" }

// Format keeps every verb of fmt from the value, also %d and %#v, which String does not reach.
func (d Digest) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, d.String()) }

// LogValue keeps slog's handlers from the digest's text form.
func (d Digest) LogValue() slog.Value { return slog.StringValue(d.String()) }
