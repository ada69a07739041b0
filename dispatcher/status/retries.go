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
	// slowReport is how long a report may take at no cost to its namespace: several times what an API server
	// needs. A slower one costs restFactor times as long, for which the namespace rests: it takes at most a
	// thirtieth of the time of all reports. One of stuckReport and more costs twice as much for each further one in
	// a row, up to maxCost.
	slowReport  = 50 * time.Millisecond
	stuckReport = time.Second
	restFactor  = 30
	maxCost     = 10 * time.Minute
	// reportBurst is the cost of one report that times out. A namespace that has not rested for so much is reported
	// to all the same: an API server that stalls once, say because etcd chooses a leader, costs nobody a rest.
	reportBurst = restFactor * reportTimeout
	// forgetRetry is how long after its next try a merchant or a namespace is forgotten.
	forgetRetry = 10 * time.Minute
)

// retries say which reports must wait because reports before them failed, or were slow. A tenant can see to both, with a Merchant that is too large
// for one more line, or with a slow admission webhook in its namespace: then it must cost neither the API server nor the reports of others more than
// one that works.
type retries struct {
	mu         sync.Mutex
	merchants  map[string]retry // by merchant id
	namespaces map[string]slowness
}

// retry says how many reports to a merchant have failed in a row, and when to make the next.
type retry struct {
	failed int
	next   time.Time
}

// slowness says how many reports to a namespace were stuck in a row, and until when it rests for all its slow ones:
// the theoretical arrival time of a limiter (GCRA).
type slowness struct {
	stuck int
	tat   time.Time
}

// due reports whether a report to the Merchant of an endpoint may be tried.
func (r *retries) due(endpoint endpoints.Endpoint, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rests := r.namespaces[endpoint.Merchant.Namespace].tat.Sub(now)
	return !now.Before(r.merchants[endpoint.MerchantID].next) && rests <= reportBurst
}

// after returns the slowness after one more report, which took so long. A fast one ends the row of stuck ones.
func (s slowness) after(now time.Time, took time.Duration) slowness {
	cost := restFactor * took
	switch {
	case took < slowReport:
		return slowness{0, s.tat}
	case took < stuckReport:
		s.stuck = 0
	default:
		cost = min(cost<<min(s.stuck, 8), maxCost)
		s.stuck++
	}
	if s.tat.Before(now) {
		s.tat = now
	}
	s.tat = s.tat.Add(cost)
	return s
}

// note notes how a report has ended, and how long it took, and returns whether it needs no repetition.
func (r *retries) note(ctx context.Context, endpoint endpoints.Endpoint, now time.Time, took time.Duration, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.merchants == nil {
		r.merchants, r.namespaces = map[string]retry{}, map[string]slowness{}
	}
	done := err == nil || errors.Is(err, ErrMerchantGone)
	if !done && ctx.Err() != nil {
		return false // because of the shutdown
	}
	namespace := endpoint.Merchant.Namespace
	r.namespaces[namespace] = r.namespaces[namespace].after(now, took)
	if done {
		delete(r.merchants, endpoint.MerchantID)
		return true
	}
	last := r.merchants[endpoint.MerchantID].failed
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
	long := now.Add(-forgetRetry)
	maps.DeleteFunc(r.merchants, func(_ string, last retry) bool { return last.next.Before(long) })
	maps.DeleteFunc(r.namespaces, func(_ string, slow slowness) bool { return slow.tat.Before(long) })
}
