package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// Override is a verdict on the digests of one ApiKey that a replica may know before its watch does.
type Override struct {
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	KeyID      string
	// Generation of the record the verdict is from.
	Generation int64
	// Current is the digest in force; zero: the key is revoked, and no digest is accepted.
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
	key := keyspaceOf(session.BucketOf(override.MerchantID)).override(override.KeyID)
	answer, err := s.run(ctx, overrideScript, []string{key},
		override.Generation, override.encode(), flag(override.Current.IsZero()), overrideLifetime.Milliseconds())
	if err != nil {
		return fmt.Errorf("write an override: %w", err)
	}
	if answer.text() != wordOK {
		return fmt.Errorf("write an override: %w", ErrCorrupt)
	}
	return nil
}

// encode writes what admission.lua reads: the generation and the current digest, then each previous
// digest and its end in milliseconds, all parted by single spaces.
func (o Override) encode() string {
	if o.Current.IsZero() {
		return decimal(o.Generation) + " -"
	}
	var text strings.Builder
	text.WriteString(decimal(o.Generation) + " " + o.Current.Hex())
	for _, previous := range o.Previous {
		text.WriteString(" " + previous.Digest.Hex() + " " + decimal(previous.ValidUntil.UnixMilli()))
	}
	return text.String()
}
