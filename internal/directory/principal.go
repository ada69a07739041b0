package directory

import (
	"errors"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

// Why a presented key is nobody's. Callers of the API are not told which.
var (
	ErrUnknownKey      = errors.New("no published key has this digest or key id")
	ErrUnusableKey     = errors.New("the key is disabled or has expired")
	ErrUnknownMerchant = errors.New("the key's merchant is not published")
)

// Principal is who presented a key, as far as this replica knows.
type Principal struct {
	KeyID string
	// Generation and Order are of the published record.
	Generation int64
	Order      published.Order
	// Digest is of the presented key.
	Digest apikey.Digest
	// Live is the record's verdict on Digest. It is false for a key of a known key id whose digest
	// is not published here, or no longer: another replica may have just made it.
	Live bool
	// Prefix is of the presented key; empty for a key made elsewhere.
	Prefix string
	// CreatedAt is when the ApiKey was first published, to the second; RotatedAt is when its current
	// key was issued.
	CreatedAt, RotatedAt time.Time
	// ExpiresAt is nil for a key without an end.
	ExpiresAt *time.Time
	Merchant  *Merchant
}
