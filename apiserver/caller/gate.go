// Package caller says who sends a request: on the public listener the holder of an API key (Gate), on the internal one a Kubernetes account
// (Accounts). It refuses all others, and counts why.
package caller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// ErrStale is the error of every request with a key while this replica may have missed a revocation.
var ErrStale = errors.New("the watch of the Kubernetes API is older than the lifetime of overrides")

// GateOptions are those of a Gate.
type GateOptions struct {
	Directory  *directory.Directory
	Admitter   *admission.Admitter
	Keys       *keystate.Store
	Redis      *redis.Client
	Blocked    *blocked.Store
	Clients    clientaddr.Resolver
	Reasons    *Reasons
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// LogRefusedKeys logs refused keys with client addresses.
	LogRefusedKeys bool
}

// Gate lets in requests with an API key.
type Gate struct {
	directory   *directory.Directory
	admitter    *admission.Admitter
	clients     clientaddr.Resolver
	reasons     *Reasons
	now         func() time.Time
	wrongKeys   *wrongKeys
	blocked     *blockedAddresses
	refusedKeys *refusedKeyLog // nil: refused keys are not logged
}

// NewGate returns a Gate. Its Finished takes each request at its end.
func NewGate(o GateOptions) *Gate {
	g := &Gate{
		directory: o.Directory, admitter: o.Admitter, clients: o.Clients, reasons: o.Reasons, now: o.Now,
		wrongKeys: newWrongKeys(o.Keys, o.Admitter.UseDue, o.Now), blocked: newBlockedAddresses(o.Blocked, o.Redis, o.Log, o.Registerer),
	}
	if o.LogRefusedKeys {
		g.refusedKeys = newRefusedKeyLog(o.Log, o.Now)
	}
	return g
}

// Run writes the counts of blocked addresses to Redis until ctx ends.
func (g *Gate) Run(ctx context.Context) { g.blocked.run(ctx) }

// Handler handles a request of a caller whose key the store still has to admit: by the script of the request, or by Admit.
type Handler func(e *web.Event, w http.ResponseWriter, r *http.Request, from Caller) error

// PermissionError is a request for which the key has no permission. Unlike why a key is refused, its caller may know: the key is good.
type PermissionError struct{ Missing v1alpha1.Permission }

func (e PermissionError) Error() string {
	return "the API key does not have the permission " + string(e.Missing)
}

// WithKey authenticates the caller before next, for which its key needs a permission.
func (g *Gate) WithKey(needs v1alpha1.Permission, next Handler) web.Handler {
	return g.authenticated(needs, false, next)
}

// WithCurrentKey is WithKey for what only the current key may do. One in its overlap is a wrong key here.
func (g *Gate) WithCurrentKey(needs v1alpha1.Permission, next Handler) web.Handler {
	return g.authenticated(needs, true, next)
}

func (g *Gate) authenticated(needs v1alpha1.Permission, currentOnly bool, next Handler) web.Handler {
	return func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
		from, err := g.caller(e, r, needs, currentOnly)
		if err != nil {
			return err
		}
		if e.KeyCharged, err = g.wrongKeys.check(r.Context(), from); err == nil {
			err = next(e, w, r, from)
		}
		switch {
		case from.expired && errors.Is(err, admission.ErrKeyRejected):
			return fmt.Errorf("%w: %w", UnauthorizedError{directory.ReasonExpired}, err)
		case errors.Is(err, admission.ErrForbidden):
			return PermissionError{needs}
		}
		return err
	}
}

// Refresh finds the caller of a request anew, after a wait: the merchant may have been suspended meanwhile, the key disabled or narrowed, the
// address blocked.
func (g *Gate) Refresh(e *web.Event, r *http.Request, from Caller) (Caller, error) {
	return g.caller(e, r, from.needs, from.currentOnly)
}

// caller finds who sent a request, and says so in its event. The Caller of an error has the key id, if it is known.
func (g *Gate) caller(e *web.Event, r *http.Request, needs v1alpha1.Permission, currentOnly bool) (Caller, error) {
	if g.directory.Age() >= keystate.OverrideLifetime {
		return Caller{}, ErrStale
	}
	address, addressErr := g.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	var from Caller
	presented, err := presentedKey(r.Header)
	if err == nil {
		from, err = g.identify(presented, address, addressErr)
	}
	from.needs = needs
	if currentOnly {
		from.currentOnly = true
		from.Accepted, from.Live = from.Current, from.Current && from.Live
	}
	e.KeyID, e.ClientAddress, e.Blocked = from.KeyID, address, from.blockedAddress(address)
	if from.Merchant != nil {
		e.MerchantID = from.Merchant.ID
	}
	if labelled, test := apikey.Labelled(presented); test || (!labelled && from.TestMode) {
		e.TestMode = true
	}
	return from, err
}

// Finished counts and logs what a request has shown of its key.
func (g *Gate) Finished(e *web.Event) {
	if e.KeyCharged && !errors.Is(e.Err, admission.ErrKeyRejected) {
		g.wrongKeys.refund(e.KeyID)
	}
	g.blocked.count(e)
	g.refusedKeys.add(e)
	g.reasons.Count(e)
}

// identify finds the caller by key and address, in memory only, so that timing does not distinguish an unknown key from a
// disallowed address. The error is an UnauthorizedError; the caller then has the key id, if it is known.
func (g *Gate) identify(presented string, address netip.Addr, addressErr error) (Caller, error) {
	if addressErr != nil { // a malformed X-Forwarded-For
		return Caller{}, UnauthorizedError{directory.ReasonAddressNotAllowed}
	}
	principal, err := g.directory.Identify(presented, g.now())
	if errors.Is(err, directory.ErrNewerVersion) {
		return Caller{Principal: principal}, err
	}
	expired := errors.Is(err, directory.ErrExpired) && principal.Merchant != nil // Redis decides
	if err != nil && !expired {
		if principal.KeyID == "" {
			principal.KeyID, _ = apikey.ParseID(presented)
		}
		return Caller{Principal: principal}, UnauthorizedError{directory.UnauthorizedReason(presented, err)}
	}
	from := Caller{Principal: principal, expired: expired, blocked: !principal.Allows(address)}
	if from.blocked && !principal.Merchant.ReportOnly {
		return from, UnauthorizedError{directory.ReasonAddressNotAllowed}
	}
	return from, nil
}

// presentedKey returns the API key of a request, also if it cannot be one: then the error is an UnauthorizedError.
func presentedKey(header http.Header) (string, error) {
	if len(header.Values("Authorization")) == 0 {
		return "", UnauthorizedError{reasonMissing}
	}
	key := bearerToken(header)
	if !apikey.Plausible(key) {
		return key, UnauthorizedError{directory.ReasonMalformed}
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

// Admit checks the key and the limit in Redis, and does nothing else.
func (g *Gate) Admit(e *web.Event, w http.ResponseWriter, r *http.Request, from Caller) (admission.Admitted, error) {
	admitted, err := g.admitter.Admit(r.Context(), from.Admission())
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	return admitted, err
}

// AdmitInvalid returns the error of an invalid request, unless Admit refuses it: a rotated key gets 401 and an exceeded limit
// 429, whatever else is wrong.
func (g *Gate) AdmitInvalid(e *web.Event, w http.ResponseWriter, r *http.Request, from Caller, invalid error) error {
	if _, err := g.Admit(e, w, r, from); err != nil {
		return err
	}
	return invalid
}
