package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
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
// neither places nor time of others. Events that find no room here stay in Redis, where any free dispatcher takes them.
type endpointQueues struct {
	limits    queueLimits
	now       func() time.Time
	attempt   func(ctx context.Context, j job) attemptResult
	deferJobs func(ctx context.Context, delay time.Duration, reason string, jobs ...job)
	// drained is called when a queue that was full is half empty.
	drained func()

	mu       sync.Mutex
	queues   [session.Buckets]map[string]*endpointQueue // by account
	ready    []*endpointQueue                           // may start an attempt; they take turns
	inFlight int
	waiting  int
	closed   bool
	attempts sync.WaitGroup
}

// queueLimits bound attempts in progress, of one endpoint and of all, and the jobs that wait for each. With so many nothing more is
// leased, for that endpoint or for any; what was leased already is taken.
type queueLimits struct {
	endpointAttempts, attempts int
	jobsPerAttempt             int
}

// attemptResult is what an attempt says about its endpoint.
type attemptResult int

const (
	inconclusive attemptResult = iota
	succeeded
	failed
)

// jobLimit is the number of waiting jobs with which a queue is full.
func (q *endpointQueues) jobLimit(queue *endpointQueue) int {
	return q.limits.jobsPerAttempt * queue.attempts(q.limits.endpointAttempts)
}

// room reports whether there is room for more jobs, and which accounts of the bucket may have none: their queue is full, or their
// breaker is open.
func (q *endpointQueues) room(bucket session.Bucket) (blocked []string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for account, queue := range q.queues[bucket] {
		if queue.full || queue.breaker.remaining(now) > 0 {
			blocked = append(blocked, account)
		}
	}
	return blocked, q.waiting < q.limits.jobsPerAttempt*q.limits.attempts
}

// queue returns the queue of the event's account, which may be a new one.
func (q *endpointQueues) queue(event outbox.Event) *endpointQueue {
	bucket, account := event.Bucket(), event.Account()
	if q.queues[bucket] == nil {
		q.queues[bucket] = map[string]*endpointQueue{}
	}
	if q.queues[bucket][account] == nil {
		q.queues[bucket][account] = &endpointQueue{}
	}
	return q.queues[bucket][account]
}

// offer queues a job, or returns for how long to defer it, and why. ctx is of attempts.
func (q *endpointQueues) offer(ctx context.Context, j job) (delay time.Duration, reason string, taken bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, deferredStopping, false
	}
	queue := q.queue(j.lease.Event)
	if open := queue.breaker.remaining(q.now()); open > 0 {
		return open, deferredBreaker, false
	}
	queue.jobs = append(queue.jobs, j)
	q.waiting++
	q.enlist(queue)
	q.startAttempts(ctx)
	queue.full = queue.full || len(queue.jobs) >= q.jobLimit(queue)
	return 0, "", true
}

// enlist puts a queue behind the ready ones if it may start an attempt.
func (q *endpointQueues) enlist(queue *endpointQueue) {
	if !queue.enlisted && queue.mayStart(q.limits.endpointAttempts) {
		queue.enlisted = true
		q.ready = append(q.ready, queue)
	}
}

// startAttempts starts attempts while there are free places.
func (q *endpointQueues) startAttempts(ctx context.Context) {
	for queue, next, ok := q.take(); ok; queue, next, ok = q.take() {
		q.attempts.Go(func() { q.work(ctx, queue, next) })
	}
}

// take takes a place and a job for it, from each ready queue in turn. false: there is no place, or no job.
func (q *endpointQueues) take() (queue *endpointQueue, next job, ok bool) {
	for q.inFlight < q.limits.attempts && len(q.ready) > 0 {
		queue = q.ready[0]
		q.ready = q.ready[1:]
		queue.enlisted = false
		if !queue.mayStart(q.limits.endpointAttempts) {
			continue
		}
		next = queue.pop()
		q.waiting--
		q.noteRoom(queue)
		queue.inFlight++
		q.inFlight++
		q.enlist(queue)
		return queue, next, true
	}
	return nil, job{}, false
}

// work makes an attempt, and further ones while there are any: the stack of a new goroutine would have to grow for each.
func (q *endpointQueues) work(ctx context.Context, queue *endpointQueue, j job) {
	for ok := true; ok; {
		result := q.run(ctx, j)
		queue, j, ok = q.finish(ctx, queue, j, result)
	}
}

// noteRoom notes that there is room for more jobs in a full queue, once it is half empty.
func (q *endpointQueues) noteRoom(queue *endpointQueue) {
	if queue.full && len(queue.jobs) <= q.jobLimit(queue)/2 {
		queue.full = false
		q.drained()
	}
}

// run makes an attempt, unless the job has waited so long that its lease could end during the attempt.
func (q *endpointQueues) run(ctx context.Context, j job) attemptResult {
	if q.now().After(j.startBy) {
		q.deferJobs(ctx, 0, deferredBusy, j)
		return inconclusive
	}
	return q.attempt(ctx, j)
}

// finish frees the place of an attempt, and takes the next job. If the result opens the breaker, it defers the waiting jobs of the
// endpoint.
func (q *endpointQueues) finish(ctx context.Context, queue *endpointQueue, j job, result attemptResult) (*endpointQueue, job, bool) {
	q.mu.Lock()
	queue.inFlight--
	q.inFlight--
	var rest []job
	var delay time.Duration
	switch result {
	case succeeded:
		queue.breaker.succeeded()
	case failed:
		if queue.breaker.failed(q.now()) {
			rest, delay = queue.clear(), queue.breaker.remaining(q.now())
			q.waiting -= len(rest)
			q.noteRoom(queue)
		}
	case inconclusive:
	}
	if queue.idle() {
		delete(q.queues[j.lease.Event.Bucket()], j.lease.Event.Account())
	}
	q.enlist(queue)
	next, nextJob, ok := q.take()
	q.startAttempts(ctx)
	q.mu.Unlock()
	if len(rest) > 0 {
		q.deferJobs(ctx, delay, deferredBreaker, rest...)
	}
	return next, nextJob, ok
}

// close refuses further jobs and defers the waiting ones.
func (q *endpointQueues) close(ctx context.Context) {
	q.mu.Lock()
	q.closed = true
	var rest []job
	for _, queues := range q.queues {
		for _, queue := range queues {
			rest = append(rest, queue.clear()...)
		}
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
	full     bool // until it is half empty
}

// attempts is how many may be in progress: one at first and after a failure, and one more with each success, up to the limit. So
// endpoints that hang take one place each.
func (q *endpointQueue) attempts(limit int) int { return min(1+q.breaker.successes, limit) }

// mayStart reports whether a job waits and another attempt may be in progress.
func (q *endpointQueue) mayStart(limit int) bool {
	return len(q.jobs) > 0 && q.inFlight < q.attempts(limit)
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
	failures, successes int // in a row
	openUntil           time.Time
}

// remaining is how long the breaker stays open.
func (b *breaker) remaining(now time.Time) time.Duration { return max(0, b.openUntil.Sub(now)) }

// failing reports whether the last attempt failed.
func (b *breaker) failing() bool { return b.failures > 0 }

func (b *breaker) succeeded() { *b = breaker{successes: b.successes + 1} }

// failed counts a failure and reports whether the breaker is open now.
func (b *breaker) failed(now time.Time) bool {
	b.failures++
	b.successes = 0
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
