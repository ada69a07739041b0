package apiserver

import (
	"net/http"
	"net/netip"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
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
