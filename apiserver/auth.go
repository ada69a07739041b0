package apiserver

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/internal/directory"
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
