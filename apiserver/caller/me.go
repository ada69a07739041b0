package caller

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// profile is the response of GET /api/v1/merchant/me.
type profile struct {
	Livemode bool            `json:"livemode"`
	Merchant merchantProfile `json:"merchant"`
	APIKey   keyProfile      `json:"apiKey"`
}

type merchantProfile struct {
	ID          string                 `json:"id"`
	Name        string                 `json:"name"`
	Status      v1alpha1.MerchantState `json:"status"`
	IPAllowlist []string               `json:"ipAllowlist"`
	Currency    string                 `json:"currency"`
	TimeZone    string                 `json:"timeZone"`
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
	// Permissions are what the key may do.
	Permissions []v1alpha1.Permission `json:"permissions"`
	// IPAllowlist narrows that of the merchant.
	IPAllowlist []string `json:"ipAllowlist"`
}

// Me responds with the profile of the caller and its merchant.
func (g *Gate) Me(e *web.Event, w http.ResponseWriter, r *http.Request, from Caller) error {
	admitted, err := g.Admit(e, w, r, from)
	if err != nil {
		return err
	}
	merchant := from.Merchant
	return web.Respond(w, http.StatusOK, profile{
		Livemode: !from.TestMode,
		Merchant: merchantProfile{
			ID:          published.PublicMerchantID(merchant.ID),
			Name:        merchant.DisplayName,
			Status:      merchant.State,
			IPAllowlist: allowlistStrings(merchant.Allowlist),
			Currency:    merchant.Currency,
			TimeZone:    merchant.TimeZone,
			RateLimit:   from.RateLimit(),
			Sessions: sessionLimits{
				LifetimeSeconds:     merchant.Sessions.LifetimeSeconds,
				MaxAmountCents:      session.MaxAmountCents,
				IdempotencyMismatch: merchant.Sessions.IdempotencyMismatch,
			},
		},
		APIKey: keyProfile{
			ID:          from.KeyID,
			Prefix:      from.Prefix,
			Generation:  from.Generation,
			CreatedAt:   from.CreatedAt.UnixMilli(),
			RotatedAt:   from.RotatedAt.UnixMilli(),
			ExpiresAt:   optionalTime(from.ExpiresAt),
			LastUsedAt:  optionalTime(&admitted.LastUsedAt),
			Permissions: from.Permissions.List(),
			IPAllowlist: allowlistStrings(from.Allowlist),
		},
	})
}

// optionalTime is a time as the API writes it; nil: none.
func optionalTime(t *time.Time) *int64 {
	if t == nil || t.IsZero() {
		return nil
	}
	return new(t.UnixMilli())
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
