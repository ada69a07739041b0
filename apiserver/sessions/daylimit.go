package sessions

import (
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// MostPerDay is the largest Options.MaxPerDay: more than Redis creates in a day, and within what a Policy counts.
const MostPerDay = 1_000_000_000

// namespaceFactor is how many sessions all Merchants of a namespace create for each that one of them may. A Merchant that is deleted and
// created again is another account, but in the same namespace.
const namespaceFactor = 10

// dayLimit bounds the sessions that a tenant creates in a day, which Redis keeps for three. It counts what this replica creates: a counter
// in Redis would make each create an eighth slower.
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

// allow counts a session.
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

// refund takes a session back that was not created.
func (l *dayLimit) refund(from caller.Caller) {
	if l != nil {
		account, namespace := owners(from)
		l.accounts.Refund(account)
		l.namespaces.Refund(namespace)
	}
}

// owners returns the account, and the namespace in the same mode.
func owners(from caller.Caller) (account, namespace string) {
	return session.Account(from.Merchant.ID, from.TestMode), session.Account(from.Merchant.Namespace, from.TestMode)
}
