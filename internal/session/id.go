package session

import (
	"crypto/rand"
	"errors"
	"strings"
)

const (
	idLabel        = "ps_"
	testIDLabel    = "ps_test" // no merchant id begins with "test"
	merchantLength = 12

	base32 = "abcdefghijklmnopqrstuvwxyz234567"
	base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// RandomLength is the length of the random part, with which an ID ends.
const RandomLength = 18

// ErrMalformedID says that a text is not a session id. It never quotes the text.
var ErrMalformedID = errors.New("not a well-formed session id")

// ID names a session: ps_<merchant id><18 base62 characters>, in test mode ps_test and the same. The 107 random bits are a payer's
// capability to read the status; the merchant id says in which account the session is. IDs are comparable; the zero ID names no
// session, and its String is empty.
type ID struct{ text string }

// NewID returns a fresh random ID of a session of the merchant, whose id is bare.
func NewID(merchantID string, testMode bool) ID {
	text := make([]byte, 0, len(testIDLabel)+merchantLength+RandomLength)
	return ID{string(appendBase62(append(append(text, label(testMode)...), merchantID...), RandomLength))}
}

// IDPrefix returns what the IDs of a merchant's sessions begin with; the random part follows.
func IDPrefix(merchantID string, testMode bool) string { return label(testMode) + merchantID }

func label(testMode bool) string {
	if testMode {
		return testIDLabel
	}
	return idLabel
}

// ParseID reads an ID. The error is ErrMalformedID whatever is wrong.
func ParseID(s string) (ID, error) {
	rest, ok := strings.CutPrefix(s, testIDLabel)
	if !ok {
		rest, ok = strings.CutPrefix(s, idLabel)
	}
	if !ok || len(rest) != merchantLength+RandomLength ||
		strings.Trim(rest[:merchantLength], base32) != "" || strings.Trim(rest[merchantLength:], base62) != "" {
		return ID{}, ErrMalformedID
	}
	return ID{s}, nil
}

// String returns the ID as callers see it, empty for the zero ID.
func (id ID) String() string { return id.text }

// IsZero reports whether the ID names no session.
func (id ID) IsZero() bool { return id.text == "" }

// MerchantID returns the bare id of the merchant in the ID, empty for the zero ID.
func (id ID) MerchantID() string {
	if id.IsZero() {
		return ""
	}
	random := len(id.text) - RandomLength
	return id.text[random-merchantLength : random]
}

// Account returns the account that the session is in.
func (id ID) Account() string { return Account(id.MerchantID(), id.TestMode()) }

// Bucket returns the bucket of the account.
func (id ID) Bucket() Bucket { return MerchantBucket(id.MerchantID()) }

// TestMode reports whether the session is of test mode.
func (id ID) TestMode() bool { return strings.HasPrefix(id.text, testIDLabel) }

// appendBase62 appends n characters, each uniformly random. Bytes of 248 and above are drawn again,
// for taking them modulo 62 would favour the first characters of the alphabet.
func appendBase62(text []byte, n int) []byte {
	const unbiased = 256 - 256%len(base62)
	full := len(text) + n
	var pool [32]byte
	for {
		_, _ = rand.Read(pool[:]) // never fails: without randomness it ends the program
		for _, b := range pool {
			if int(b) >= unbiased {
				continue
			}
			if text = append(text, base62[int(b)%len(base62)]); len(text) == full {
				return text
			}
		}
	}
}

// Buckets is how many buckets there are. It is part of every key in Redis: changing it loses all of them.
const Buckets = 64

// Bucket is one of the partitions of Redis. All state of one merchant is in one bucket, so that
// one script can change it atomically, on a Redis Cluster too.
type Bucket uint8

// AllBuckets returns all of them.
func AllBuckets() []Bucket {
	all := make([]Bucket, Buckets)
	for i := range all {
		all[i] = Bucket(i)
	}
	return all
}

// MerchantBucket returns the bucket of a merchant, by the hash of its bare id.
func MerchantBucket(merchantID string) Bucket { return Bucket(fnv1a(merchantID) % Buckets) }

// fnv1a is the FNV-1a hash of 32 bits. It is written out because hash/fnv allocates for each id, and every request has one.
func fnv1a(text string) uint32 {
	const basis, prime = 2166136261, 16777619
	hash := uint32(basis)
	for i := range len(text) {
		hash = (hash ^ uint32(text[i])) * prime
	}
	return hash
}
