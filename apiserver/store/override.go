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
	// Revision of the record the verdict is from.
	Revision int64
	// Accepted are the digests that are accepted; none: the key is revoked.
	Accepted []Accepted
}

// Accepted is a digest that is accepted until a time; zero: without an end.
type Accepted struct {
	Digest apikey.Digest
	Until  time.Time
}

// WriteOverride stores the override for 7 days. It never replaces one of a higher revision, and
// one of the same revision only to revoke the key. The error is ErrCorrupt or ErrUnavailable.
func (s *Store) WriteOverride(ctx context.Context, override Override) error {
	key := keyspaceOf(session.BucketOf(override.MerchantID)).override(override.KeyID)
	answer, err := s.run(ctx, overrideScript, []string{key},
		override.Revision, override.encode(), flag(len(override.Accepted) == 0), OverrideLifetime.Milliseconds())
	if err != nil {
		return fmt.Errorf("write an override: %w", err)
	}
	if answer.text() != wordOK {
		return fmt.Errorf("write an override: %w", ErrCorrupt)
	}
	return nil
}

// encode writes what admission.lua reads: the revision, then each accepted digest and its end in
// milliseconds or 0, or a dash for none, all parted by single spaces.
func (o Override) encode() string {
	var text strings.Builder
	text.WriteString(decimal(o.Revision))
	if len(o.Accepted) == 0 {
		text.WriteString(" -")
	}
	for _, accepted := range o.Accepted {
		var end int64
		if !accepted.Until.IsZero() {
			end = accepted.Until.UnixMilli()
		}
		text.WriteString(" " + accepted.Digest.Hex() + " " + decimal(end))
	}
	return text.String()
}
