package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// profile is the answer of GET /api/v1/merchant/me.
type profile struct {
	Merchant merchantProfile `json:"merchant"`
	APIKey   keyProfile      `json:"apiKey"`
}

type merchantProfile struct {
	ID          string                 `json:"id"`
	Name        string                 `json:"name"`
	Status      v1alpha1.MerchantState `json:"status"`
	IPAllowlist []string               `json:"ipAllowlist"`
	RateLimit   v1alpha1.RateLimit     `json:"rateLimit"`
	Sessions    sessionLimits          `json:"sessions"`
}

type sessionLimits struct {
	LifetimeSeconds     int32                              `json:"lifetimeSeconds"`
	MaxAmountCents      int64                              `json:"maxAmountCents"`
	IdempotencyMismatch v1alpha1.IdempotencyMismatchPolicy `json:"idempotencyMismatch"`
}

type keyProfile struct {
	ID         string `json:"id"`
	Prefix     string `json:"prefix"`
	Generation int64  `json:"generation"`
	CreatedAt  int64  `json:"createdAt"`
	RotatedAt  int64  `json:"rotatedAt"`
	ExpiresAt  *int64 `json:"expiresAt"`
	LastUsedAt *int64 `json:"lastUsedAt"`
}

func (a *api) merchantMe(w http.ResponseWriter, r *http.Request, from caller) error {
	admitted, err := a.admit(w, r, from)
	if err != nil {
		return err
	}
	merchant := from.Merchant
	return respond(w, http.StatusOK, profile{
		Merchant: merchantProfile{
			ID:          published.PublicMerchantID(merchant.ID),
			Name:        merchant.DisplayName,
			Status:      merchant.State,
			IPAllowlist: blocks(merchant.Allowlist),
			RateLimit:   merchant.RateLimit,
			Sessions: sessionLimits{
				LifetimeSeconds:     merchant.Sessions.LifetimeSeconds,
				MaxAmountCents:      session.MaxAmountCents,
				IdempotencyMismatch: merchant.Sessions.IdempotencyMismatch,
			},
		},
		APIKey: keyProfile{
			ID:         from.KeyID,
			Prefix:     from.Prefix,
			Generation: from.Generation,
			CreatedAt:  milliseconds(from.CreatedAt),
			RotatedAt:  milliseconds(from.RotatedAt),
			ExpiresAt:  millisecondsOrNull(from.ExpiresAt),
			LastUsedAt: millisecondsOrNull(&admitted.LastUsedAt),
		},
	})
}

// blocks writes an allowlist as the Merchant's manifest does: a single address without its length.
func blocks(allowlist []netip.Prefix) []string {
	out := make([]string, 0, len(allowlist))
	for _, block := range allowlist {
		if block.IsSingleIP() {
			out = append(out, block.Addr().String())
		} else {
			out = append(out, block.String())
		}
	}
	return out
}

// rotatedKey is the answer of POST /api/v1/keys/rotate, the only one that ever holds a key.
type rotatedKey struct {
	FullKey string `json:"fullKey"`
	Prefix  string `json:"prefix"`
	Warning string `json:"warning"`
}

// rotationTimeout bounds reading and replacing the published key.
const rotationTimeout = 3 * time.Second

// rotationLimit bounds the rotations of one ApiKey over all replicas: each is a write to the Kubernetes API that every replica
// hears of.
var rotationLimit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 100}

// rotateKey replaces the presented key. Once it has answered 200, no replica accepts the old key and
// every replica accepts the new one, however late their watches are: first the published Secret is
// replaced by compare-and-swap, of which a race has one winner; then the override is written, which
// every request's script reads; only then is the key shown.
func (a *api) rotateKey(w http.ResponseWriter, r *http.Request, from caller) error {
	admitted, err := a.store.AdmitRotation(r.Context(), from.admission(), rotationLimit)
	quota := merchantQuota
	if errors.Is(err, store.ErrRotationLimited) {
		quota = rotationQuota
	}
	a.tellQuota(w, quota, admitted.Quota, err)
	if err != nil {
		return err
	}
	// A client that hangs up must not leave the swap without its override.
	uncancelled := context.WithoutCancel(r.Context())
	ctx, cancel := context.WithTimeout(uncancelled, rotationTimeout)
	defer cancel()
	key, record, swapErr := a.keys.rotate(ctx, from.KeyID, from.Digest)
	if record.KeyID == "" {
		return swapErr
	}
	// The loser of a race writes it as well: its 401 must not come before the key is dead everywhere.
	err = a.store.WriteOverride(uncancelled, overrideOf(record, a.now()))
	if err != nil && !errors.Is(err, store.ErrNewerOverride) {
		return fmt.Errorf("%w: %w", errNotInForce, err)
	}
	if swapErr != nil {
		return swapErr
	}
	a.metrics.rotations.WithLabelValues(string(v1alpha1.RotationAPI)).Inc()
	a.log.Info("rotated an API key", "keyID", record.KeyID, "generation", record.Generation)
	return respond(w, http.StatusOK, rotatedKey{
		FullKey: key.Reveal(),
		Prefix:  key.Prefix(),
		Warning: "Store this key securely now: it is not shown again. The previous key no longer works.",
	})
}
