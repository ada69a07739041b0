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

// profile is the response of GET /api/v1/merchant/me.
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

func (a *publicAPI) merchantMe(w http.ResponseWriter, r *http.Request, from caller) error {
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
			IPAllowlist: allowlistStrings(merchant.Allowlist),
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
			CreatedAt:  unixMilli(from.CreatedAt),
			RotatedAt:  unixMilli(from.RotatedAt),
			ExpiresAt:  unixMilliOrNull(from.ExpiresAt),
			LastUsedAt: unixMilliOrNull(&admitted.LastUsedAt),
		},
	})
}

// allowlistStrings formats an allowlist as in the Merchant's spec: a single address has no prefix length.
func allowlistStrings(allowlist []netip.Prefix) []string {
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

// rotatedKey is the response of POST /api/v1/keys/rotate, the only response with an API key.
type rotatedKey struct {
	FullKey string `json:"fullKey"`
	Prefix  string `json:"prefix"`
	Warning string `json:"warning"`
}

// rotationTimeout limits reading and replacing the published key.
const rotationTimeout = 3 * time.Second

// rotationLimit limits the rotations of one ApiKey over all replicas. Each one is a write to the Kubernetes API, and an event
// for every replica.
var rotationLimit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 100}

// rotateKey replaces the presented key. After a 200 every replica refuses the old key and accepts the new one, however late
// its watch is. The order is: compare-and-swap of the published Secret, so that one of several rotations wins; the override,
// which every request reads; the response.
func (a *publicAPI) rotateKey(w http.ResponseWriter, r *http.Request, from caller) error {
	admitted, err := a.store.AdmitRotation(r.Context(), from.admission(), rotationLimit)
	quota := merchantQuota
	if errors.Is(err, store.ErrRotationLimited) {
		quota = rotationQuota
	}
	a.setQuotaHeaders(w, quota, admitted.Quota, err)
	if err != nil {
		return err
	}
	// A client that disconnects must not prevent the override after the swap.
	uncancelled := context.WithoutCancel(r.Context())
	ctx, cancel := context.WithTimeout(uncancelled, rotationTimeout)
	defer cancel()
	key, record, swapErr := a.keys.rotate(ctx, from.KeyID, from.Digest)
	if record.KeyID == "" {
		return swapErr
	}
	// Whoever loses the race writes it too: every replica must refuse the key before the 401 is sent.
	err = a.store.WriteOverride(uncancelled, overrideOf(record, a.now()))
	if err != nil && !errors.Is(err, store.ErrNewerOverride) {
		return fmt.Errorf("%w: %w", errRotationIncomplete, err)
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
