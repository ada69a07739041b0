package store

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
)

// Admission is who asks, and what this replica's directory knows of the presented key.
type Admission struct {
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	KeyID      string
	// Generation is of the published record this replica knows.
	Generation int64
	// Digest is of the presented key.
	Digest apikey.Digest
	// Live is the directory's own verdict on Digest.
	Live bool
	// Blocked: the merchant is not active, so decide about the key and stop.
	Blocked bool
	// Limit bounds the merchant's requests.
	Limit ratelimit.Policy
}

// PublicAdmission is who asks without a key.
type PublicAdmission struct {
	// Subject is who is counted, such as ip:203.0.113.7. It must not look like a merchant id.
	Subject string
	Limit   ratelimit.Policy
}

// Admitted is what the script says of an admitted request, whatever the operation then found. With
// ErrRateLimited only Quota and Now are set.
type Admitted struct {
	ratelimit.Quota
	// Now is the time of Redis, the clock of every session.
	Now time.Time
	// LastUsedAt is when the key was last used before this request, to within a minute; zero: never.
	LastUsedAt time.Time
}

// Admit decides whether the request is admitted and counts it, and does nothing else. Errors:
// ErrKeyRejected, ErrMerchantBlocked, ErrRateLimited, ErrCorrupt, ErrUnavailable.
func (s *Store) Admit(ctx context.Context, admission Admission) (Admitted, error) {
	return Admitted{}, ErrUnavailable
}
