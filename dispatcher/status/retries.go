package status

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

const (
	// firstRetry is the time to the third try of a report: the second one is made in the next round. Each further one takes twice as long, up to
	// the interval in which a merchant may report changes anyway.
	firstRetry, maxRetry = 4 * time.Second, outbox.ReportInterval
	// slowReport is how long a report may take at no cost to its namespace: several times what an API server needs. After a slower one the
	// namespace rests for restFactor times as long, so it takes at most a thirtieth of the time of all reports. After one of stuckReport and more
	// the rest is twice as long for each further one in a row, up to maxRest.
	slowReport  = 50 * time.Millisecond
	stuckReport = time.Second
	restFactor  = 30
	maxRest     = 10 * time.Minute
	// forgetRetry is how long after its next try a merchant or a namespace is forgotten.
	forgetRetry = 10 * time.Minute
)

// retries say which reports must wait because reports before them failed, or were slow. A tenant can see to both, with a Merchant that is too large
// for one more line, or with a slow admission webhook in its namespace: then it must cost neither the API server nor the reports of others more than
// one that works.
type retries struct {
	mu         sync.Mutex
	merchants  map[string]retry // by merchant id
	namespaces map[string]retry
}

// retry says how many reports in a row have failed, or were slow, and when to make the next.
type retry struct {
	reports int
	next    time.Time
}

// due reports whether a report to the Merchant of an endpoint may be tried.
func (r *retries) due(endpoint endpoints.Endpoint, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !now.Before(r.merchants[endpoint.MerchantID].next) && !now.Before(r.namespaces[endpoint.Merchant.Namespace].next)
}

// note notes how a report has ended, and how long it took, and returns whether it needs no repetition.
func (r *retries) note(ctx context.Context, endpoint endpoints.Endpoint, now time.Time, took time.Duration, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.merchants == nil {
		r.merchants, r.namespaces = map[string]retry{}, map[string]retry{}
	}
	done := err == nil || errors.Is(err, ErrMerchantGone)
	if !done && ctx.Err() != nil {
		return false // because of the shutdown
	}
	namespace := endpoint.Merchant.Namespace
	switch last := r.namespaces[namespace].reports; {
	case took >= stuckReport:
		r.namespaces[namespace] = retry{last + 1, now.Add(min(restFactor*took<<min(last, 8), maxRest))}
	case took >= slowReport:
		r.namespaces[namespace] = retry{0, now.Add(restFactor * took)}
	default:
		delete(r.namespaces, namespace)
	}
	if done {
		delete(r.merchants, endpoint.MerchantID)
		return true
	}
	last := r.merchants[endpoint.MerchantID].reports
	var delay time.Duration
	if last > 0 {
		delay = min(firstRetry<<min(last-1, 8), maxRetry)
	}
	r.merchants[endpoint.MerchantID] = retry{last + 1, now.Add(delay)}
	return false
}

// forget forgets merchants and namespaces of which nothing was to be reported for long.
func (r *retries) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range []map[string]retry{r.merchants, r.namespaces} {
		maps.DeleteFunc(all, func(_ string, last retry) bool { return last.next.Before(now.Add(-forgetRetry)) })
	}
}
