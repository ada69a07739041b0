package apiserver

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// caller is who an authenticated request is from, as far as the directory can tell. The store has
// the last word on the key.
type caller struct{ directory.Principal }

// withKey makes an endpoint of one that needs to know its caller.
func (a *api) withKey(next func(http.ResponseWriter, *http.Request, caller) error) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		if a.directory.Age() >= store.OverrideLifetime {
			return errStale // a revocation may have been missed for good
		}
		presented, err := bearer(r.Header)
		if err != nil {
			return err
		}
		address, err := a.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
		if err != nil {
			return unauthorizedError{reasonMalformedAddress}
		}
		from, err := a.identify(presented, address)
		if err != nil {
			return err
		}
		charged, err := a.wrongKeys.check(r.Context(), from)
		if err != nil {
			return err
		}
		err = next(w, r, from)
		if charged && !errors.Is(err, store.ErrKeyRejected) {
			a.wrongKeys.refund(from.KeyID)
		}
		return err
	}
}

// identify finds the caller by key and address. Both are decided in memory, so that neither timing
// nor Redis tells an unknown key from a foreign address. The error is an unauthorizedError.
func (a *api) identify(presented string, address netip.Addr) (caller, error) {
	principal, err := a.directory.Identify(presented, a.now())
	switch {
	case errors.Is(err, directory.ErrUnusableKey):
		return caller{}, unauthorizedError{reasonUnusableKey}
	case errors.Is(err, directory.ErrUnknownMerchant):
		return caller{}, unauthorizedError{reasonUnknownMerchant}
	case err != nil:
		return caller{}, unauthorizedError{reasonUnknownKey}
	}
	if !principal.Merchant.Allows(address) {
		return caller{}, unauthorizedError{reasonForeignAddress}
	}
	return caller{principal}, nil
}

// bearer returns the presented key.
func bearer(header http.Header) (string, error) {
	if len(header.Values("Authorization")) == 0 {
		return "", unauthorizedError{reasonNoKey}
	}
	key := credential(header)
	if !apikey.Plausible(key) {
		return "", unauthorizedError{reasonMalformedKey}
	}
	return key, nil
}

// credential returns what the one Authorization header presents (RFC 6750, section 2.1); empty: nothing.
// More than one header is none: which of them a proxy had looked at could not be told.
func credential(header http.Header) string {
	lines := header.Values("Authorization")
	if len(lines) != 1 {
		return ""
	}
	scheme, presented, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(presented, " ")
}

func (c caller) admission() store.Admission {
	return store.Admission{
		MerchantID: c.Merchant.ID,
		KeyID:      c.KeyID,
		Order:      c.Order,
		Digest:     c.Digest,
		Live:       c.Live,
		Blocked:    !c.Merchant.Active(),
		Limit:      policyOf(c.Merchant.RateLimit),
	}
}

func policyOf(limit v1alpha1.RateLimit) ratelimit.Policy {
	return ratelimit.Policy{RequestsPerSecond: int64(limit.RequestsPerSecond), Burst: int64(limit.Burst)}
}

// admit decides about the key and the limit, and does nothing else. A request that is going to be
// refused as wrong spends its one round trip here, for a dead key and a spent limit come first.
func (a *api) admit(w http.ResponseWriter, r *http.Request, from caller) (store.Admitted, error) {
	admitted, err := a.store.Admit(r.Context(), from.admission())
	a.tellQuota(w, merchantQuota, admitted.Quota, err)
	return admitted, err
}

// Why a request was answered 401. They label a metric, and callers are never told.
const (
	reasonNoKey            = "no_key"
	reasonMalformedKey     = "malformed_key"
	reasonUnknownKey       = "unknown_key"
	reasonUnusableKey      = "unusable_key" // disabled or expired
	reasonDeadKey          = "dead_key"     // rotated, says Redis
	reasonUnknownMerchant  = "unknown_merchant"
	reasonForeignAddress   = "foreign_address"
	reasonMalformedAddress = "malformed_address"
	reasonRailToken        = "rail_token"
)

func unauthorizedReasons() []string {
	return []string{
		reasonNoKey, reasonMalformedKey, reasonUnknownKey, reasonUnusableKey, reasonDeadKey,
		reasonUnknownMerchant, reasonForeignAddress, reasonMalformedAddress, reasonRailToken,
	}
}

// reasonOf names the cause of a 401 for the metric.
func reasonOf(err error) string {
	if refused, ok := errors.AsType[unauthorizedError](err); ok {
		return refused.reason
	}
	if errors.Is(err, authz.ErrUnauthenticated) {
		return reasonRailToken
	}
	return reasonDeadKey // the store's verdict
}
