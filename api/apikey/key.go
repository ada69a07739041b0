// Package apikey has the format of API keys, and generates, parses and digests them.
//
// A key is mk_live_<key id>_<secret><checksum>, a test key mk_test_ and the same. The key id is public and the same for the life of
// an ApiKey object.
// The secret is 32 random base62 characters. The checksum detects typing errors and false hits of secret scanners
// without a look-up. Only digests are stored.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"
)

// Lengths of the parts of a key, in characters.
const (
	liveLabel   = "mk_live_"
	testLabel   = "mk_test_"
	labelLength = len(liveLabel)
	idLength    = 12
	secretStart = labelLength + idLength + 1
	secretSize  = 32
	checkStart  = secretStart + secretSize
	checkSize   = 6

	// Length of a generated key.
	Length = checkStart + checkSize

	prefixLength = secretStart + 4
)

// Limits of the length of any API key, also an externally generated one.
const (
	MinLength = 32
	MaxLength = 256
)

// ErrMalformed means that the string does not have the key format. The error never quotes the string.
var ErrMalformed = errors.New("not a well-formed API key")

// Key is the plaintext of a generated key. It prints as its prefix, so that a key in a log or an error does not leak;
// only Reveal returns the plaintext. The zero Key is no key.
//
// The plaintext is behind a pointer because fmt does not call methods of unexported fields; it then prints an
// address. So Keys are not comparable with ==.
type Key struct{ plaintext *string }

// New generates a key with a new random secret. The key id must be 12 characters of lower-case base32 (see
// published.ID).
func New(keyID string) (Key, error) { return generate(liveLabel, keyID) }

// NewTest is New for a test key.
func NewTest(keyID string) (Key, error) { return generate(testLabel, keyID) }

func generate(label, keyID string) (Key, error) {
	if !validID(keyID) {
		return Key{}, fmt.Errorf("key id %q: want %d characters of lower-case base32", keyID, idLength)
	}
	body := label + keyID + "_" + randomBase62(secretSize)
	sum := checksum(body)
	return newKey(body + string(sum[:])), nil
}

// Parse reads a generated key. The error is always ErrMalformed.
func Parse(s string) (Key, error) {
	if _, ok := ParseID(s); !ok {
		return Key{}, ErrMalformed
	}
	return newKey(s), nil
}

// ParseID returns the key id of a generated key; false: s is not one. The id shares the memory of s.
func ParseID(s string) (id string, ok bool) {
	if labelled, _ := Labelled(s); len(s) != Length || !labelled || s[secretStart-1] != '_' {
		return "", false
	}
	id = s[labelLength : secretStart-1]
	if !validID(id) || !isBase62(s[secretStart:]) {
		return "", false
	}
	if sum := checksum(s[:checkStart]); string(sum[:]) != s[checkStart:] {
		return "", false
	}
	return id, true
}

// Mistyped reports whether s begins like a generated key and is none. It may still be an externally generated one.
func Mistyped(s string) bool {
	_, ok := ParseID(s)
	labelled, _ := Labelled(s)
	return labelled && !ok
}

// IsTest reports whether s has the label of a test key.
func IsTest(s string) bool { return strings.HasPrefix(s, testLabel) }

// Labelled reports whether s has the label of a generated key, and whether that is of a test key.
func Labelled(s string) (labelled, test bool) {
	test = IsTest(s)
	return test || strings.HasPrefix(s, liveLabel), test
}

// Plausible reports whether s may be an API key, generated here or externally: 32 to 256 visible ASCII characters.
func Plausible(s string) bool {
	if len(s) < MinLength || len(s) > MaxLength {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func newKey(plaintext string) Key { return Key{&plaintext} }

// Reveal returns the plaintext, empty for the zero Key. The caller must not log or store it.
func (k Key) Reveal() string {
	if k.plaintext == nil {
		return ""
	}
	return *k.plaintext
}

// ID returns the key id, empty for the zero Key.
func (k Key) ID() string { return k.part(labelLength, secretStart-1) }

// Prefix returns the first part, which may be shown to people: label, key id and the first four characters of the
// secret. It is empty for the zero Key.
func (k Key) Prefix() string { return k.part(0, prefixLength) }

// Prefix returns the prefix of a generated key. The caller has checked its digest.
func Prefix(generated string) string { return generated[:min(prefixLength, len(generated))] }

// Digest returns the digest of the key.
func (k Key) Digest() Digest { return NewDigest(k.Reveal()) }

func (k Key) part(from, to int) string {
	if k.plaintext == nil {
		return ""
	}
	return (*k.plaintext)[from:to]
}

// checksum is CRC-32 (IEEE) of everything before it, as six base62 digits. It is no secret. It runs in every request:
// crc32.ChecksumIEEE would need a copy of the text on the heap.
func checksum(body string) [checkSize]byte {
	sum := ^uint32(0)
	for i := range len(body) {
		sum = crc32.IEEETable[byte(sum&0xff)^body[i]] ^ sum>>8
	}
	return base62(^sum)
}

func validID(s string) bool {
	if len(s) != idLength {
		return false
	}
	for i := range len(s) {
		if (s[i] < 'a' || s[i] > 'z') && (s[i] < '2' || s[i] > '7') {
			return false
		}
	}
	return true
}

// String returns the prefix and an ellipsis, never the plaintext.
func (k Key) String() string {
	if k.plaintext == nil {
		return "no key"
	}
	return k.Prefix() + "…"
}

// Format hides the plaintext from every verb of fmt, also %d and %#v, which do not call String.
func (k Key) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, k.String()) }

// LogValue hides the content of the Key from slog's handlers.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// randomBase62 returns n uniformly random characters. Bytes of 248 and above are drawn again, because modulo 62 would
// favour the first characters.
func randomBase62(n int) string {
	const unbiased = 256 - 256%len(alphabet)
	out := make([]byte, 0, n)
	var pool [64]byte
	for {
		// crypto/rand.Read never fails: without randomness it ends the program.
		_, _ = rand.Read(pool[:])
		for _, b := range pool {
			if int(b) >= unbiased {
				continue
			}
			if out = append(out, alphabet[int(b)%len(alphabet)]); len(out) == n {
				return string(out)
			}
		}
	}
}

// base62 writes a checksum, padded with zeros.
func base62(v uint32) (digits [checkSize]byte) {
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = alphabet[v%uint32(len(alphabet))]
		v /= uint32(len(alphabet))
	}
	return digits
}

func isBase62(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// Digest is the SHA-256 of a whole API key string. A key has 190 random bits, so one fast hash is enough.
type Digest [sha256.Size]byte

// ErrBadDigest means that the text is not 64 lower-case hex digits.
var ErrBadDigest = errors.New("not a SHA-256 digest of 64 lower-case hex digits")

// NewDigest returns the digest of a presented key.
func NewDigest(presented string) Digest {
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
