package apiserver

import (
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// api is what the public endpoints work with.
type api struct {
	edge

	directory   *directory.Directory
	store       *store.Store
	keys        publishedKeys
	clients     clientaddr.Resolver
	publicLimit ratelimit.Policy
	wrongKeys   *wrongKeys
	qrScheme    string
	now         func() time.Time
}

// qrPayload is what the payer's QR code says.
func (a *api) qrPayload(id session.ID) string { return a.qrScheme + "://qr/" + id.String() }

// admit decides about the key and the limit, and does nothing else. A request that is going to be
// refused as wrong spends its one round trip here, for a dead key and a spent limit come first.
func (a *api) admit(w http.ResponseWriter, r *http.Request, from caller) (store.Admitted, error) {
	admitted, err := a.store.Admit(r.Context(), from.admission())
	a.tellQuota(w, merchantQuota, admitted.Quota, err)
	return admitted, err
}

// milliseconds is how the API writes a time: a Unix timestamp in milliseconds.
func milliseconds(t time.Time) int64 { return t.UnixMilli() }

// millisecondsOrNull writes a time there may be none of.
func millisecondsOrNull(t *time.Time) *int64 {
	if t == nil || t.IsZero() {
		return nil
	}
	return new(milliseconds(*t))
}

func policyOf(limit v1alpha1.RateLimit) ratelimit.Policy {
	return ratelimit.Policy{RequestsPerSecond: int64(limit.RequestsPerSecond), Burst: int64(limit.Burst)}
}
