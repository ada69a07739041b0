package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

var errStale = errors.New("the watch of the Kubernetes API is older than the lifetime of overrides")

// caller is who sent a request, as far as the directory knows. The store makes the final decision about the key.
type caller struct {
	directory.Principal

	// blocked: the merchant's allowlist does not allow the address.
	blocked bool
	// currentOnly: Accepted and Live are about the current key only.
	currentOnly bool
	// expired: by this replica's clock.
	expired bool
}

// withKey authenticates the caller before next.
func (a *publicAPI) withKey(next keyHandler) web.Handler { return a.authenticated(next, false) }

// withCurrentKey is withKey for what only the current key may do. One in its overlap is a wrong key here.
func (a *publicAPI) withCurrentKey(next keyHandler) web.Handler { return a.authenticated(next, true) }

// keyHandler handles a request of a caller whose key the store still has to admit.
type keyHandler func(*web.Event, http.ResponseWriter, *http.Request, caller) error

func (a *publicAPI) authenticated(next keyHandler, currentOnly bool) web.Handler {
	return func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
		if a.directory.Age() >= store.OverrideLifetime {
			return errStale // this replica may have missed a revocation
		}
		address, addressErr := a.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
		var from caller
		presented, err := presentedKey(r.Header)
		if err == nil {
			from, err = a.identify(presented, address, addressErr)
		}
		if currentOnly {
			from.currentOnly = true
			from.Accepted, from.Live = from.Current, from.Current && from.Live
		}
		e.KeyID, e.ClientAddress, e.Blocked = from.KeyID, address, from.blockedAddress(address)
		if labelled, test := apikey.Labelled(presented); test || (!labelled && from.TestMode) {
			e.TestMode = true
		}
		if err != nil {
			return err
		}
		if e.KeyCharged, err = a.wrongKeys.check(r.Context(), from); err == nil {
			err = next(e, w, r, from)
		}
		if from.expired && errors.Is(err, store.ErrKeyRejected) {
			return fmt.Errorf("%w: %w", unauthorizedError{reasonExpired}, err)
		}
		return err
	}
}

// blockedAddress is for the count of good keys from addresses that the allowlist does not have.
func (c caller) blockedAddress(address netip.Addr) web.BlockedAddress {
	if !c.blocked || !c.Live || !c.Merchant.Active() {
		return web.BlockedAddress{}
	}
	return web.BlockedAddress{MerchantID: c.Merchant.ID, Block: c.Merchant.Allowlist.Block(address), ReportOnly: c.Merchant.ReportOnly}
}

// finished counts and logs what a request has shown of its key.
func (a *publicAPI) finished(e *web.Event) {
	if e.KeyCharged && !errors.Is(e.Err, store.ErrKeyRejected) {
		a.wrongKeys.refund(e.KeyID)
	}
	a.blocked.count(e)
	if reason := unauthorizedReason(e.Err); reason != "" {
		a.refusedKeys.add(e, reason)
		if !e.TestMode {
			a.reasons.WithLabelValues(reason).Inc()
		}
	}
}

// identify finds the caller by key and address, in memory only, so that timing does not distinguish an unknown key from a
// disallowed address. The error is an unauthorizedError; the caller then has the key id, if it is known.
func (a *publicAPI) identify(presented string, address netip.Addr, addressErr error) (caller, error) {
	if addressErr != nil { // a malformed X-Forwarded-For
		return caller{}, unauthorizedError{reasonAddressNotAllowed}
	}
	principal, err := a.directory.Identify(presented, a.now())
	if errors.Is(err, directory.ErrNewerVersion) {
		return caller{Principal: principal}, err
	}
	expired := errors.Is(err, directory.ErrExpired) && principal.Merchant != nil // Redis decides
	if err != nil && !expired {
		if principal.KeyID == "" {
			principal.KeyID, _ = apikey.IDOf(presented)
		}
		return caller{Principal: principal}, unauthorizedError{directory.ReasonOf(presented, err)}
	}
	from := caller{Principal: principal, expired: expired, blocked: !principal.Merchant.Allowlist.Allows(address)}
	if from.blocked && !principal.Merchant.ReportOnly {
		return from, unauthorizedError{reasonAddressNotAllowed}
	}
	return from, nil
}

// presentedKey returns the API key of a request, also if it cannot be one: then the error is an unauthorizedError.
func presentedKey(header http.Header) (string, error) {
	if len(header.Values("Authorization")) == 0 {
		return "", unauthorizedError{reasonMissing}
	}
	key := bearerToken(header)
	if !apikey.Plausible(key) {
		return key, unauthorizedError{reasonMalformed}
	}
	return key, nil
}

// bearerToken returns the token of the Authorization header (RFC 6750, section 2.1); empty: none. Several headers count as
// none, because a proxy may have checked another one.
func bearerToken(header http.Header) string {
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

// acceptedBy reports, as lib/admission.lua does, whether the presented key is accepted at the time now of Redis.
func (c caller) acceptedBy(override store.Override, now time.Time) bool {
	if override.Order.Compare(c.Order) < 0 { // or there is none
		return c.Accepted && (c.Until.IsZero() || now.Before(c.Until))
	}
	if c.currentOnly {
		return override.AcceptsOnly(c.Digest, now)
	}
	return override.Accepts(c.Digest, now)
}

func (c caller) admission() store.Admission {
	return store.Admission{
		MerchantID: c.Merchant.ID,
		TestMode:   c.TestMode,
		KeyID:      c.KeyID,
		Order:      c.Order,
		Digest:     c.Digest,
		Live:       c.Accepted,
		Until:      c.Until,
		Inactive:   !c.Merchant.Active(),
		Limit:      policyOf(c.rateLimit()),
	}
}

// testRateLimit is the most that all test keys of a merchant get together: what they create is kept for a day, and takes Redis and its
// processor from live traffic.
var testRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 5, Burst: 100}

// rateLimit is that of the merchant, in test mode no more than testRateLimit.
func (c caller) rateLimit() v1alpha1.RateLimit {
	limit := c.Merchant.RateLimit
	if c.TestMode {
		limit.RequestsPerSecond = min(limit.RequestsPerSecond, testRateLimit.RequestsPerSecond)
		limit.Burst = min(limit.Burst, testRateLimit.Burst)
	}
	return limit
}

func policyOf(limit v1alpha1.RateLimit) ratelimit.Policy {
	return ratelimit.Policy{RequestsPerSecond: int64(limit.RequestsPerSecond), Burst: int64(limit.Burst)}
}

// admit checks the key and the limit in Redis, and does nothing else.
func (a *publicAPI) admit(e *web.Event, w http.ResponseWriter, r *http.Request, from caller) (store.Admitted, error) {
	admitted, err := a.store.Admit(r.Context(), from.admission())
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	return admitted, err
}

// admitInvalid returns the error of an invalid request, unless admit refuses it: a rotated key gets 401 and an exceeded limit
// 429, whatever else is wrong.
func (a *publicAPI) admitInvalid(e *web.Event, w http.ResponseWriter, r *http.Request, from caller, invalid error) error {
	if _, err := a.admit(e, w, r, from); err != nil {
		return err
	}
	return invalid
}
