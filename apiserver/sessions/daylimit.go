package sessions

import (
	"errors"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// ErrTooMany refuses a new session, or a request for a refund, of an account that has made as many as one may in a day.
var ErrTooMany = errors.New("too many sessions and refunds of a day")

// MostPerDay is the largest Options.MaxPerDay: more than Redis creates in a day, and within what a Policy counts.
const MostPerDay = 1_000_000_000

// namespaceFactor is how many sessions all Merchants of a namespace create for each that one of them may. A Merchant that is deleted and
// created again is another account, but in the same namespace.
const namespaceFactor = 10

// dayLimit bounds the sessions that a tenant creates in a day, which Redis keeps for three, and the refunds that it asks for, each of which adds about
// five kilobytes. It counts what this replica records: a counter in Redis would make each create an eighth slower.
type dayLimit struct{ accounts, namespaces *ratelimit.Limiter }

// newDayLimit returns nil, which allows everything, for zero.
func newDayLimit(perDay int64, now func() time.Time) *dayLimit {
	if perDay == 0 {
		return nil
	}
	limiter := func(most int64) *ratelimit.Limiter {
		const day = int64(24 * time.Hour / time.Second)
		return ratelimit.NewLimiter(ratelimit.Policy{RequestsPerSecond: most / day, Burst: most}, now)
	}
	return &dayLimit{limiter(perDay), limiter(perDay * namespaceFactor)}
}

// allow counts a session, or a request for a refund.
func (l *dayLimit) allow(from caller.Caller) (quota ratelimit.Quota, allowed bool) {
	if l == nil {
		return ratelimit.Quota{}, true
	}
	account, namespace := owners(from)
	if quota, allowed = l.namespaces.Allow(namespace); !allowed {
		return quota, false
	}
	if quota, allowed = l.accounts.Allow(account); !allowed {
		l.namespaces.Refund(namespace)
	}
	return quota, allowed
}

// uncount takes back a session or a request for a refund that was not recorded: it was repeated, or refused with err. After an
// unknown outcome it stays counted if the key is good. With any other key it cannot have been recorded, and would use up the
// merchant's day while Redis is away.
func (l *dayLimit) uncount(from caller.Caller, repeated bool, err error) {
	asks := from.Admission()
	good := asks.Accepted && !asks.Forbidden && !asks.Inactive
	recorded := err == nil && !repeated || good && isUnknown(err)
	if l != nil && !recorded {
		account, namespace := owners(from)
		l.accounts.Refund(account)
		l.namespaces.Refund(namespace)
	}
}

// owners returns the account, and the namespace in the same mode.
func owners(from caller.Caller) (account, namespace string) {
	return session.Account(from.Merchant.ID, from.TestMode), session.Account(from.Merchant.Namespace, from.TestMode)
}

// countToday counts a session or a request for a refund of today, or answers as the gate does that there are too many.
func (h *Handler) countToday(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	quota, allowed := h.perDay.allow(from)
	if allowed {
		return nil
	}
	err := h.gate.AdmitInvalid(e, w, r, from, ErrTooMany)
	if errors.Is(err, ErrTooMany) {
		e.SetLimited(w.Header(), web.SessionLimit, quota)
	}
	return err
}
