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

// Digest is the SHA-256 of a whole API key string. A key has 190 random bits, so one fast hash is enough.
type Digest [sha256.Size]byte

// ErrBadDigest: the text is not 64 lower-case hex digits.
var ErrBadDigest = errors.New("not a SHA-256 digest of 64 lower-case hex digits")

// DigestOf returns the digest of a presented key.
func DigestOf(presented string) Digest {
	// A copy on the stack; converting more than 32 bytes would allocate on the heap in each request.
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

// Format hides the value from every verb of fmt, also %d and %#v, which do not call String.
func (d Digest) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, d.String()) }

// LogValue hides the text form of the digest from slog's handlers.
func (d Digest) LogValue() slog.Value { return slog.StringValue(d.String()) }
