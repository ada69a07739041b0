package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// job is a leased event and its endpoint.
type job struct {
	lease    outbox.Lease
	endpoint endpoints.Endpoint
	// occurred is the time of the event, by this program's clock.
	occurred time.Time
	// startBy is the last time to start an attempt that ends before the lease, at leaseEnd.
	startBy, leaseEnd time.Time
}

// endpointQueues share a dispatcher's attempts among merchants, so that the events of a slow or dead endpoint take
// neither places nor time of others. An event without a place is deferred, and any free dispatcher takes it.
type endpointQueues struct {
	limits    queueLimits
	now       func() time.Time
	attempt   func(ctx context.Context, j job) attemptResult
	deferJobs func(ctx context.Context, delay time.Duration, reason string, jobs ...job)

	mu       sync.Mutex
	queues   map[string]*endpointQueue // by account
	ready    []*endpointQueue          // may start an attempt; they take turns
	inFlight int
	waiting  int
	closed   bool
	attempts sync.WaitGroup
}

// queueLimits bound attempts in progress and waiting jobs, of one endpoint and of all.
type queueLimits struct {
	endpointAttempts, attempts int
	endpointJobs, jobs         int
}

// attemptResult is what an attempt says about its endpoint.
type attemptResult int

const (
	inconclusive attemptResult = iota
	succeeded
	failed
)

// busyDelay is for how long an event is deferred whose queue is full.
const busyDelay = time.Second

// offer queues a job, or returns for how long to defer it, and why. ctx is of attempts.
func (q *endpointQueues) offer(ctx context.Context, j job) (delay time.Duration, reason string, taken bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, deferredStopping, false
	}
	account := j.lease.Event.Account()
	queue := q.queues[account]
	if queue == nil {
		queue = &endpointQueue{}
		q.queues[account] = queue
	}
	if open := queue.breaker.remaining(q.now()); open > 0 {
		return open, deferredBreaker, false
	}
	if len(queue.jobs) >= q.limits.endpointJobs || q.waiting >= q.limits.jobs {
		return busyDelay, deferredBusy, false
	}
	queue.jobs = append(queue.jobs, j)
	q.waiting++
	q.enlist(queue)
	q.startAttempts(ctx)
	return 0, "", true
}

// enlist puts a queue behind the ready ones if it may start an attempt.
func (q *endpointQueues) enlist(queue *endpointQueue) {
	if !queue.enlisted && queue.mayStart(q.limits.endpointAttempts) {
		queue.enlisted = true
		q.ready = append(q.ready, queue)
	}
}

// startAttempts starts attempts while there are free places, one of each ready queue in turn.
func (q *endpointQueues) startAttempts(ctx context.Context) {
	for q.inFlight < q.limits.attempts && len(q.ready) > 0 {
		queue := q.ready[0]
		q.ready = q.ready[1:]
		queue.enlisted = false
		if !queue.mayStart(q.limits.endpointAttempts) {
			continue
		}
		next := queue.pop()
		q.waiting--
		queue.inFlight++
		q.inFlight++
		q.attempts.Go(func() { q.run(ctx, queue, next) })
		q.enlist(queue)
	}
}

// run makes an attempt, unless the job has waited so long that its lease could end during the attempt.
func (q *endpointQueues) run(ctx context.Context, queue *endpointQueue, j job) {
	result := inconclusive
	if q.now().After(j.startBy) {
		q.deferJobs(ctx, 0, deferredBusy, j)
	} else {
		result = q.attempt(ctx, j)
	}
	if rest, delay := q.finish(ctx, queue, j, result); len(rest) > 0 {
		q.deferJobs(ctx, delay, deferredBreaker, rest...)
	}
}

// finish frees the place of an attempt. If that opens the breaker, it returns the waiting jobs of the endpoint.
func (q *endpointQueues) finish(ctx context.Context, queue *endpointQueue, j job, result attemptResult) (rest []job, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.inFlight--
	q.inFlight--
	switch result {
	case succeeded:
		queue.breaker.succeeded()
	case failed:
		if queue.breaker.failed(q.now()) {
			rest, delay = queue.clear(), queue.breaker.remaining(q.now())
			q.waiting -= len(rest)
		}
	case inconclusive:
	}
	if queue.idle() {
		delete(q.queues, j.lease.Event.Account())
	}
	q.enlist(queue)
	q.startAttempts(ctx)
	return rest, delay
}

// close refuses further jobs and defers the waiting ones.
func (q *endpointQueues) close(ctx context.Context) {
	q.mu.Lock()
	q.closed = true
	var rest []job
	for _, queue := range q.queues {
		rest = append(rest, queue.clear()...)
	}
	q.waiting = 0
	q.mu.Unlock()
	q.deferJobs(ctx, 0, deferredStopping, rest...)
}

// wait reports whether all attempts end within the timeout. Call it after close.
func (q *endpointQueues) wait(timeout time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		q.attempts.Wait()
		close(ended)
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

func (q *endpointQueues) attemptsInFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight
}

// endpointQueue is what a dispatcher holds for one account.
type endpointQueue struct {
	jobs     []job // wait for an attempt
	inFlight int
	breaker  breaker
	enlisted bool // among the ready ones
}

// mayStart reports whether a job waits and the endpoint's attempts are below the limit.
func (q *endpointQueue) mayStart(limit int) bool {
	if q.breaker.failing() {
		limit = 1
	}
	return len(q.jobs) > 0 && q.inFlight < limit
}

func (q *endpointQueue) pop() job {
	next := q.jobs[0]
	q.jobs[0] = job{} // free its memory
	q.jobs = q.jobs[1:]
	return next
}

// clear empties the queue and returns its jobs.
func (q *endpointQueue) clear() []job {
	jobs := q.jobs
	q.jobs = nil
	return jobs
}

// idle reports whether there is nothing to remember of the queue.
func (q *endpointQueue) idle() bool {
	return len(q.jobs) == 0 && q.inFlight == 0 && !q.breaker.failing()
}

const (
	// breakerThreshold is how many failures in a row open a breaker.
	breakerThreshold = 5
	// A breaker stays open for minOpen at first, twice as long each time, at most for maxOpen.
	minOpen, maxOpen = 5 * time.Second, time.Minute
)

// breaker is a circuit breaker: it stops attempts to an endpoint that only fails. The zero breaker is closed. After it
// has been open, one attempt at a time finds out whether the endpoint has recovered. It counts the attempts of this
// dispatcher; what all must agree on is in Redis.
type breaker struct {
	failures  int // in a row
	openUntil time.Time
}

// remaining is how long the breaker stays open.
func (b *breaker) remaining(now time.Time) time.Duration { return max(0, b.openUntil.Sub(now)) }

// failing reports whether the last attempt failed.
func (b *breaker) failing() bool { return b.failures > 0 }

func (b *breaker) succeeded() { *b = breaker{} }

// failed counts a failure and reports whether the breaker is open now.
func (b *breaker) failed(now time.Time) bool {
	b.failures++
	if b.failures < breakerThreshold {
		return false
	}
	open := maxOpen
	if doublings := b.failures - breakerThreshold; doublings < 4 {
		open = min(maxOpen, minOpen<<doublings)
	}
	b.openUntil = now.Add(open)
	return true
}
