package sessions

import (
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
)

// merchantsOfNamespace is how many times as many sessions as one Merchant all of a namespace create: a Merchant that is deleted and created again is
// another account.
const merchantsOfNamespace = 10

// dayLimit bounds the sessions that a tenant creates in a day, which Redis keeps for three. It counts those of this replica: a counter in Redis would
// make each create an eighth slower.
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
	return &dayLimit{limiter(perDay), limiter(perDay * merchantsOfNamespace)}
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
	if namespace = from.Merchant.Namespace; from.TestMode {
		namespace += ".test"
	}
	asks := from.Admission()
	return asks.Account(), namespace
}
