package directory

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
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
	// Generation and Revision are of the published record.
	Generation, Revision int64
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

// Merchant is what the directory keeps of a published merchant. It is shared and never changed.
type Merchant struct {
	// ID is the bare id, without the "mer_" callers see.
	ID          string
	DisplayName string
	State       v1alpha1.MerchantState
	// Allowlist are the blocks callers must be in; none: any address.
	Allowlist []netip.Prefix
	RateLimit v1alpha1.RateLimit
	Sessions  v1alpha1.SessionSettings
	// TellCreated: its webhook asks for session.created.
	TellCreated bool
}

// Active reports whether the merchant may use the API.
func (m *Merchant) Active() bool { return m.State == v1alpha1.MerchantActive }

// Allows reports whether the merchant's servers may call from the address.
func (m *Merchant) Allows(address netip.Addr) bool {
	return len(m.Allowlist) == 0 ||
		slices.ContainsFunc(m.Allowlist, func(block netip.Prefix) bool { return block.Contains(address) })
}

// key is what the directory keeps of a published key. It is never changed, only replaced.
type key struct {
	record    published.KeyRecord // without what only the operator reads
	merchant  string              // the name of its merchant's published object
	createdAt time.Time
}

func (k *key) principal(digest apikey.Digest, prefix string, merchant *Merchant, now time.Time) Principal {
	return Principal{
		KeyID:      k.record.KeyID,
		Generation: k.record.Generation,
		Revision:   k.record.Revision,
		Digest:     digest,
		Live:       k.record.Live(digest, now),
		Prefix:     prefix,
		CreatedAt:  k.createdAt,
		RotatedAt:  k.record.LastRotation.Time,
		ExpiresAt:  k.record.ExpiresAt,
		Merchant:   merchant,
	}
}
