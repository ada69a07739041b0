package status

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

const (
	// firstRetry is the time to the third try of a report: the second one is made in the next round. Each further one takes twice as long, up to
	// the interval in which a merchant may report changes anyway.
	firstRetry, maxRetry = 4 * time.Second, outbox.ReportInterval
	// forgetRetry is how long after its next try a merchant is forgotten whose report is not due any more.
	forgetRetry = 10 * time.Minute
)

// retries are the merchants of which the last report could not be written. A tenant can see to that, with a Merchant that is too large for one
// more line: then it must cost neither the API server nor the reports of others more than one that works.
type retries struct {
	mu     sync.Mutex
	failed map[string]retry // by merchant id
}

// retry says how many reports have failed in a row, and when to make the next.
type retry struct {
	failures int
	next     time.Time
}

// due reports whether a report of the merchant may be tried.
func (r *retries) due(merchantID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !time.Now().Before(r.failed[merchantID].next)
}

// note notes how a report has ended, and returns whether that needs no repetition.
func (r *retries) note(ctx context.Context, merchantID string, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || errors.Is(err, ErrMerchantGone) {
		delete(r.failed, merchantID)
		return true
	}
	if ctx.Err() != nil {
		return false // that of the shutdown
	}
	last := r.failed[merchantID]
	var delay time.Duration
	if last.failures > 0 {
		delay = min(firstRetry<<min(last.failures-1, 8), maxRetry)
	}
	if r.failed == nil {
		r.failed = map[string]retry{}
	}
	r.failed[merchantID] = retry{last.failures + 1, time.Now().Add(delay)}
	return false
}

// forget forgets merchants of which nothing was to be reported for long.
func (r *retries) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := time.Now().Add(-forgetRetry)
	maps.DeleteFunc(r.failed, func(_ string, failed retry) bool { return failed.next.Before(before) })
}
