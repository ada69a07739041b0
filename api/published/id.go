package published

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// idLength is in characters; 60 bits of a hash keep a million objects apart.
const idLength = 12

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ID returns the identity the data plane knows an object by: 12 characters of lower-case base32 of
// the SHA-256 of its UID. A restarted operator finds what it made by it, and an object that was
// deleted and created again is another one.
func ID(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return idEncoding.EncodeToString(sum[:])[:idLength]
}

// ShownMerchantID is a merchant's id as people and callers of the API see it.
func ShownMerchantID(id string) string { return "mer_" + id }

func validID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}
