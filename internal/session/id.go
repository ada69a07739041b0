package session

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
)

const (
	idLabel      = "ps_"
	testIDLabel  = "ps_test"
	bucketLength = 2
	randomLength = 24

	base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// ErrMalformedID says that a text is not a session id. It never quotes the text.
var ErrMalformedID = errors.New("not a well-formed session id")

// ID names a session: ps_<bucket: 2 lower-case hex digits><24 base62 characters>, in test mode ps_test and the same. The 142 random
// bits are a payer's capability to read the status. IDs are comparable; the zero ID names no
// session, and its String is empty.
type ID struct{ text string }

// NewID returns a fresh random ID in the bucket.
func NewID(bucket Bucket) ID { return newID(idLabel, bucket) }

// NewTestID is NewID for a session of test mode.
func NewTestID(bucket Bucket) ID { return newID(testIDLabel, bucket) }

func newID(label string, bucket Bucket) ID {
	text := make([]byte, 0, len(label)+bucketLength+randomLength)
	text = append(text, label...)
	text = hex.AppendEncode(text, []byte{byte(bucket % Buckets)})
	return ID{string(appendBase62(text, randomLength))}
}

// ParseID reads an ID. The error is ErrMalformedID whatever is wrong.
func ParseID(s string) (ID, error) {
	rest, labelled := strings.CutPrefix(s, idLabel)
	if test, ok := strings.CutPrefix(s, testIDLabel); ok {
		rest = test
	}
	if !labelled || len(rest) != bucketLength+randomLength {
		return ID{}, ErrMalformedID
	}
	if _, ok := parseBucket(rest[:bucketLength]); !ok {
		return ID{}, ErrMalformedID
	}
	for i := bucketLength; i < len(rest); i++ {
		if strings.IndexByte(base62, rest[i]) < 0 {
			return ID{}, ErrMalformedID
		}
	}
	return ID{s}, nil
}

// String returns the ID as callers see it, empty for the zero ID.
func (id ID) String() string { return id.text }

// IsZero reports whether the ID names no session.
func (id ID) IsZero() bool { return id.text == "" }

// Bucket returns the bucket the session is in, 0 for the zero ID.
func (id ID) Bucket() Bucket {
	if id.IsZero() {
		return 0
	}
	start := len(id.text) - randomLength - bucketLength
	bucket, _ := parseBucket(id.text[start : start+bucketLength])
	return bucket
}

// TestMode reports whether the session is of test mode.
func (id ID) TestMode() bool { return strings.HasPrefix(id.text, testIDLabel) }

// parseBucket reads two hex digits. Only one spelling is accepted, for an ID is part of a key.
func parseBucket(digits string) (Bucket, bool) {
	bucket, err := strconv.ParseUint(digits, 16, 8)
	if err != nil || bucket >= Buckets || strings.ToLower(digits) != digits {
		return 0, false
	}
	return Bucket(bucket), true
}

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

// Buckets is how many buckets there are. It is part of every session id and every key in Redis:
// changing it loses all of them.
const Buckets = 64

// Bucket is one of the partitions of Redis. All state of one merchant is in one bucket, so that
// one script can change it atomically, on a Redis Cluster too.
type Bucket uint8

// BucketOf returns the bucket of a merchant, by the FNV-1a hash (32 bits) of its bare id. It is written out because hash/fnv
// allocates for each id, and every request has one.
func BucketOf(merchantID string) Bucket {
	const basis, prime = 2166136261, 16777619
	hash := uint32(basis)
	for i := range len(merchantID) {
		hash = (hash ^ uint32(merchantID[i])) * prime
	}
	return Bucket(hash % Buckets)
}
