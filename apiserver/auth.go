package apiserver

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// caller is who sent a request, as far as the directory knows. The store makes the final decision about the key.
type caller struct{ directory.Principal }

// withKey authenticates the caller before next.
func (a *publicAPI) withKey(next func(http.ResponseWriter, *http.Request, caller) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if a.directory.Age() >= store.OverrideLifetime {
			return errStale // this replica may have missed a revocation
		}
		address, addressErr := a.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
		from, err := a.identify(r.Header, address, addressErr)
		if err == nil {
			err = a.serve(w, r, from, next)
		}
		a.refusals.refused(err, from.KeyID, address)
		return err
	}
}

// serve calls next unless the key is one wrong key too many.
func (a *publicAPI) serve(
	w http.ResponseWriter, r *http.Request, from caller, next func(http.ResponseWriter, *http.Request, caller) error,
) error {
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

// identify finds the caller by key and address, in memory only, so that timing does not distinguish an unknown key from a
// disallowed address. The error is an unauthorizedError; the caller then has the key id, if it is known.
func (a *publicAPI) identify(header http.Header, address netip.Addr, addressErr error) (caller, error) {
	presented, err := presentedKey(header)
	if err != nil {
		return caller{}, err
	}
	if addressErr != nil { // a malformed X-Forwarded-For
		return caller{}, unauthorizedError{reasonAddressNotAllowed}
	}
	principal, err := a.directory.Identify(presented, a.now())
	if err != nil {
		if principal.KeyID == "" {
			principal.KeyID, _ = apikey.IDOf(presented)
		}
		return caller{principal}, unauthorizedError{reasonOfKey(presented, err)}
	}
	if !principal.Merchant.Allows(address) {
		return caller{principal}, unauthorizedError{reasonAddressNotAllowed}
	}
	return caller{principal}, nil
}

// presentedKey returns the API key of a request. The error is an unauthorizedError.
func presentedKey(header http.Header) (string, error) {
	if len(header.Values("Authorization")) == 0 {
		return "", unauthorizedError{reasonMissing}
	}
	key := bearerToken(header)
	if !apikey.Plausible(key) {
		return "", unauthorizedError{reasonMalformed}
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

// admit checks the key and the limit in Redis, and does nothing else.
func (a *publicAPI) admit(w http.ResponseWriter, r *http.Request, from caller) (store.Admitted, error) {
	admitted, err := a.store.Admit(r.Context(), from.admission())
	a.setQuotaHeaders(w, merchantQuota, admitted.Quota, err)
	return admitted, err
}

// admitInvalid returns the error of an invalid request, unless admit refuses it: a rotated key gets 401 and an exceeded limit
// 429, whatever else is wrong.
func (a *publicAPI) admitInvalid(w http.ResponseWriter, r *http.Request, from caller, invalid error) error {
	if _, err := a.admit(w, r, from); err != nil {
		return err
	}
	return invalid
}

// The reasons of a 401. They label a metric and a log line; callers never see them.
const (
	reasonMissing           = "missing"
	reasonMalformed         = "malformed"
	reasonUnknown           = "unknown"
	reasonRotated           = "rotated" // according to Redis or the published record
	reasonExpired           = "expired"
	reasonDisabled          = "disabled"
	reasonMerchantMissing   = "merchant_missing"
	reasonAddressNotAllowed = "address_not_allowed"
	reasonDigestClaimed     = "digest_claimed"
	reasonRailToken         = "rail_token" // of the internal listener; the others are about API keys
)

func unauthorizedReasons() []string {
	return []string{
		reasonMissing, reasonMalformed, reasonUnknown, reasonRotated, reasonExpired, reasonDisabled,
		reasonMerchantMissing, reasonAddressNotAllowed, reasonDigestClaimed, reasonRailToken,
	}
}

// reasonOf returns the reason of a 401.
func reasonOf(err error) string {
	if refused, ok := errors.AsType[unauthorizedError](err); ok {
		return refused.reason
	}
	if errors.Is(err, authz.ErrUnauthenticated) {
		return reasonRailToken
	}
	return reasonRotated // store.ErrKeyRejected
}

// reasonOfKey returns why the directory refuses a presented key.
func reasonOfKey(presented string, err error) string {
	switch {
	case errors.Is(err, directory.ErrMerchantMissing):
		return reasonMerchantMissing
	case errors.Is(err, directory.ErrDisabled):
		return reasonDisabled
	case errors.Is(err, directory.ErrExpired):
		return reasonExpired
	case errors.Is(err, directory.ErrDigestClaimed):
		return reasonDigestClaimed
	case apikey.Mistyped(presented):
		return reasonMalformed
	}
	return reasonUnknown
}

const (
	// refusalLogInterval is the minimum time between two log lines about one key id and address.
	refusalLogInterval = time.Second
	// maxLoggedRefusals limits the memory; over it, refusals of further keys and addresses are not logged in this second.
	maxLoggedRefusals = 10_000
)

// refusalLog logs refused keys, for operators who look for the cause of a 401. A nil one logs nothing.
type refusalLog struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	logged map[refusal]struct{}
	since  time.Time // the beginning of the interval that logged is about
}

type refusal struct {
	keyID   string
	address netip.Addr
}

func newRefusalLog(log *slog.Logger, now func() time.Time) *refusalLog {
	return &refusalLog{log: log, now: now, logged: map[refusal]struct{}{}}
}

// refused logs a refusal. The key id is empty if the presented string has none.
func (l *refusalLog) refused(err error, keyID string, address netip.Addr) {
	if l == nil || (!errors.Is(err, store.ErrKeyRejected) && !isUnauthorized(err)) {
		return
	}
	if l.first(refusal{keyID, address}) {
		l.log.Info("refused API key", "reason", reasonOf(err), "keyID", keyID, "clientAddress", address.String())
	}
}

// first reports whether this refusal is the first of its kind in the interval.
func (l *refusalLog) first(r refusal) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.since) >= refusalLogInterval || now.Before(l.since) {
		clear(l.logged)
		l.since = now
	}
	_, again := l.logged[r]
	if again || len(l.logged) >= maxLoggedRefusals {
		return false
	}
	l.logged[r] = struct{}{}
	return true
}
