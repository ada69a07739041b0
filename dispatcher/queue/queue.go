// The way of a job: Offer puts it into the queue of its account. As soon as there is a place, take takes it, work has the Worker make its
// attempt, and finish frees the place and takes the next job.

package queue

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/attempt"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Worker does what becomes of jobs.
type Worker interface {
	// Attempt makes an attempt and records its result.
	Attempt(ctx context.Context, j attempt.Job) attempt.Result
	// Defer puts jobs back into Redis, to be due after the delay.
	Defer(ctx context.Context, delay time.Duration, reason string, jobs ...attempt.Job)
}

// Queues share a dispatcher's attempts among merchants: one queue for each account.
type Queues struct {
	// Drained is set when there is room again in a queue that was full.
	Drained loop.Signal

	worker Worker
	limits Limits
	now    func() time.Time

	mu       sync.Mutex
	queues   [session.Buckets]map[string]*accountQueue // by account
	tenants  map[string]*tenant                        // by namespace
	ready    []*tenant                                 // with a queue that may start an attempt; they take turns
	turns    uint64
	inFlight int
	waiting  int
	closed   bool
	running  sync.WaitGroup
}

// New returns queues without jobs.
func New(worker Worker, limits Limits, now func() time.Time) *Queues {
	return &Queues{Drained: loop.NewSignal(), worker: worker, limits: limits, now: now, tenants: map[string]*tenant{}}
}

// tenant is what a dispatcher holds for the merchants of a namespace.
type tenant struct {
	namespace string
	queues    int // of its merchants
	inFlight  int
	ready     readyQueues
}

// Limits bound attempts in progress, of one endpoint and of all, and the jobs that wait for each.
type Limits struct {
	Concurrency, MaxInFlight int
	JobsPerAttempt           int
}

// kept is how many attempts are kept for namespaces that have none in progress, and as many again for endpoints.
func (l Limits) kept() int { return l.MaxInFlight / 16 }

// workedOff is the time in which an endpoint should work off its waiting jobs.
const workedOff = 500 * time.Millisecond

// waiting is how many jobs may wait for an endpoint: fewer if it is slow, for they would only keep others' out.
func (l Limits) waiting(queue *accountQueue) int {
	each := l.JobsPerAttempt
	if queue.pace > 0 {
		each = min(each, int(workedOff/queue.pace))
	}
	return each * queue.concurrency(l.Concurrency)
}

// free is for how many more jobs of an endpoint there is room, waiting or in progress; 0 until it is worth a lease.
func (l Limits) free(queue *accountQueue) int {
	waiting := l.waiting(queue)
	free := waiting + queue.concurrency(l.Concurrency) - queue.inFlight - len(queue.jobs)
	if free < max(1, waiting/2) {
		return 0
	}
	return free
}

// Room returns for how many more jobs of the bucket's accounts there is room; 0: the queue is full, or its breaker is open. each is
// the room for any other account; 0: nothing may be leased. With many waiting jobs there is room for one of an account that has none here,
// so that what waits for slow endpoints keeps nobody's events in Redis.
func (q *Queues) Room(bucket session.Bucket) (room map[string]int, each int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, limit := q.now(), q.limits.JobsPerAttempt*q.limits.MaxInFlight
	room = make(map[string]int, len(q.queues[bucket]))
	for account, queue := range q.queues[bucket] {
		free := q.limits.free(queue)
		queue.full = free == 0 || q.waiting >= limit
		switch {
		case queue.forgettable(now):
			q.forget(account, bucket, queue)
		case queue.full || queue.breaker.remaining(now) > 0:
			room[account] = 0
		default:
			room[account] = free
		}
	}
	switch {
	case q.waiting < limit:
		return room, q.limits.JobsPerAttempt
	case q.waiting < 2*limit:
		return room, 1
	}
	return room, 0
}

// Offer queues a job, or returns for how long to defer it, and why. ctx is the context of attempts.
func (q *Queues) Offer(ctx context.Context, j attempt.Job) (delay time.Duration, reason string, taken bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, attempt.DeferredStopping, false
	}
	queue := q.queue(j)
	if open := queue.breaker.remaining(q.now()); open > 0 {
		return open, attempt.DeferredBreaker, false
	}
	queue.jobs = append(queue.jobs, j)
	q.waiting++
	q.enlist(queue)
	q.start(ctx)
	return 0, "", true
}

// start starts attempts while there are free places.
func (q *Queues) start(ctx context.Context) {
	for queue, next, ok := q.take(); ok; queue, next, ok = q.take() {
		q.running.Go(func() { q.work(ctx, queue, next) })
	}
}

// take takes a place and a job for it. false: there is no place, or no job.
func (q *Queues) take() (queue *accountQueue, next attempt.Job, ok bool) {
	queue = q.next()
	if queue == nil {
		return nil, attempt.Job{}, false
	}
	next = queue.pop()
	q.waiting--
	q.count(queue, 1)
	q.turns++
	queue.turn = q.turns
	q.enlist(queue)
	if at := slices.Index(q.ready, queue.tenant); at >= 0 { // the next turn is another namespace's
		q.ready = append(slices.Delete(q.ready, at, at+1), queue.tenant)
	}
	return queue, next, true
}

// work makes an attempt, and further ones while there are any: the stack of a new goroutine would have to grow for each. A job that has waited
// so long that its lease could end during the attempt is deferred.
func (q *Queues) work(ctx context.Context, queue *accountQueue, j attempt.Job) {
	for ok := true; ok; {
		started, result := time.Now(), attempt.Inconclusive // a jump of the clock is no slow attempt
		if q.now().After(j.StartBy) {
			q.worker.Defer(ctx, 0, attempt.DeferredBusy, j)
		} else {
			result = q.worker.Attempt(ctx, j)
		}
		queue, j, ok = q.finish(ctx, queue, j, result, time.Since(started))
	}
}

// finish frees the place of an attempt, and takes the next job. If the result opens the breaker, it defers the waiting jobs of the
// endpoint.
func (q *Queues) finish(ctx context.Context, queue *accountQueue, j attempt.Job, result attempt.Result, took time.Duration) (*accountQueue, attempt.Job, bool) {
	q.mu.Lock()
	q.count(queue, -1)
	if result != attempt.Inconclusive {
		queue.note(took)
	}
	var rest []attempt.Job
	var delay time.Duration
	switch result {
	case attempt.Succeeded:
		queue.breaker.succeeded()
	case attempt.Failed:
		if queue.breaker.failed(q.now()) {
			rest, delay = queue.clear(), queue.breaker.remaining(q.now())
			q.waiting -= len(rest)
		}
	case attempt.Inconclusive:
	}
	q.enlist(queue)
	if queue.idle() && !queue.breaker.failing() {
		q.forget(j.Lease.Event.Account(), j.Lease.Event.Bucket(), queue)
	}
	next, nextJob, ok := q.take()
	q.start(ctx)
	q.mu.Unlock()
	if len(rest) > 0 {
		q.worker.Defer(ctx, delay, attempt.DeferredBreaker, rest...)
	}
	return next, nextJob, ok
}

// Close refuses further jobs and defers the waiting ones.
func (q *Queues) Close(ctx context.Context) {
	q.mu.Lock()
	q.closed = true
	var rest []attempt.Job
	for _, queues := range &q.queues {
		for _, queue := range queues {
			rest = append(rest, queue.clear()...)
			q.enlist(queue)
		}
	}
	q.waiting = 0
	q.mu.Unlock()
	q.worker.Defer(ctx, 0, attempt.DeferredStopping, rest...)
}

// Wait reports whether all attempts end within the timeout. Call it after Close.
func (q *Queues) Wait(timeout time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		q.running.Wait()
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

// InFlight returns how many attempts are in progress.
func (q *Queues) InFlight() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight
}

// Idle reports whether no attempt is in progress, and no job waits for one.
func (q *Queues) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting == 0 && q.inFlight == 0
}

// queue returns the queue of the job's account, which may be a new one.
func (q *Queues) queue(j attempt.Job) *accountQueue {
	bucket, account, namespace := j.Lease.Event.Bucket(), j.Lease.Event.Account(), j.Endpoint.Merchant.Namespace
	if known := q.queues[bucket][account]; known != nil {
		return known
	}
	if q.queues[bucket] == nil {
		q.queues[bucket] = map[string]*accountQueue{}
	}
	owner := q.tenants[namespace]
	if owner == nil {
		owner = &tenant{namespace: namespace}
		q.tenants[namespace] = owner
	}
	owner.queues++
	queue := &accountQueue{tenant: owner}
	q.queues[bucket][account] = queue
	return queue
}

// forget forgets an idle queue.
func (q *Queues) forget(account string, bucket session.Bucket, queue *accountQueue) {
	delete(q.queues[bucket], account)
	queue.tenant.queues--
	if queue.tenant.queues == 0 {
		delete(q.tenants, queue.tenant.namespace)
	}
}

// enlist puts a queue where it belongs among the ready ones: there it is while it may start an attempt. It must follow each change of what
// the queue has waiting and in progress. If there is room again in a full queue, more may be leased.
func (q *Queues) enlist(queue *accountQueue) {
	if queue.full && q.limits.free(queue) > 0 {
		queue.full = false
		q.Drained.Set()
	}
	owner, ready := queue.tenant, queue.mayStart(q.limits.Concurrency)
	switch {
	case ready && queue.enlisted:
		heap.Fix(&owner.ready, queue.index)
	case ready:
		q.turns++
		queue.turn, queue.enlisted = q.turns, true
		heap.Push(&owner.ready, queue)
		if len(owner.ready) == 1 {
			q.ready = append(q.ready, owner)
		}
	case queue.enlisted:
		queue.enlisted = false
		heap.Remove(&owner.ready, queue.index)
		if len(owner.ready) == 0 {
			at := slices.Index(q.ready, owner)
			q.ready = slices.Delete(q.ready, at, at+1)
		}
	}
}

// next returns the queue that has the next attempt: of the namespace with the fewest in progress, the endpoint with the fewest. Slow
// attempts stay in progress, so this shares the time of attempts, not their number, and only while others wait. nil: nobody may have one.
func (q *Queues) next() *accountQueue {
	var next *tenant
	for _, candidate := range q.ready {
		if (next == nil || candidate.inFlight < next.inFlight) && q.mayTake(candidate, candidate.ready[0]) {
			next = candidate
		}
	}
	if next == nil {
		return nil
	}
	return next.ready[0]
}

// inFlightPerFree is how many attempts a namespace may have in progress for each place that it
// leaves free: alone it has about seven places of ten, and another one has several attempts of each
// endpoint at once, although all endpoints of the first hang.
const inFlightPerFree = 3

// mayTake reports whether there is a free place for an attempt that is not kept for others.
func (q *Queues) mayTake(owner *tenant, queue *accountQueue) bool {
	free := q.limits.MaxInFlight - q.inFlight
	if owner.inFlight > 0 {
		free -= q.limits.kept()
	}
	if queue.inFlight > 0 {
		free -= q.limits.kept()
	}
	return owner.inFlight < inFlightPerFree*free
}

// count counts attempts in progress.
func (q *Queues) count(queue *accountQueue, delta int) {
	queue.inFlight += delta
	queue.tenant.inFlight += delta
	q.inFlight += delta
}

// accountQueue is what a dispatcher holds for one account.
type accountQueue struct {
	tenant   *tenant
	jobs     []attempt.Job // wait for an attempt
	inFlight int
	breaker  breaker
	pace     time.Duration // of its attempts, a moving average; 0: not known
	full     bool          // nothing of its account is leased until there is room again

	// Among the ready ones of the tenant.
	enlisted bool
	index    int
	turn     uint64
}

// readyQueues is a heap of queues that may start an attempt: those with the fewest in progress first, and then in turn.
type readyQueues []*accountQueue //nolint:recvcheck // as container/heap wants it

func (r readyQueues) Len() int { return len(r) }
func (r readyQueues) Less(a, b int) bool {
	return cmp.Or(cmp.Compare(r[a].inFlight, r[b].inFlight), cmp.Compare(r[a].turn, r[b].turn)) < 0
}

func (r readyQueues) Swap(a, b int) {
	r[a], r[b] = r[b], r[a]
	r[a].index, r[b].index = a, b
}

// Push is called by container/heap only.
func (r *readyQueues) Push(queue any) {
	added := queue.(*accountQueue) //nolint:forcetypeassert // container/heap has no types
	added.index = len(*r)
	*r = append(*r, added)
}

// Pop is called by container/heap only.
func (r *readyQueues) Pop() any {
	last := (*r)[len(*r)-1]
	(*r)[len(*r)-1] = nil // free its memory
	*r = (*r)[:len(*r)-1]
	return last
}

// concurrency is how many attempts may be in progress: one at first and after a failure, and one more with each success, up to the limit. So
// endpoints that hang take one place each.
func (q *accountQueue) concurrency(limit int) int { return min(1+q.breaker.successes, limit) }

// mayStart reports whether a job waits and another attempt may be in progress.
func (q *accountQueue) mayStart(limit int) bool {
	return len(q.jobs) > 0 && q.inFlight < q.concurrency(limit)
}

func (q *accountQueue) pop() attempt.Job {
	next := q.jobs[0]
	q.jobs[0] = attempt.Job{} // free its memory
	q.jobs = q.jobs[1:]
	return next
}

// clear empties the queue and returns its jobs.
func (q *accountQueue) clear() []attempt.Job {
	jobs := q.jobs
	q.jobs = nil
	return jobs
}

// note notes how long an attempt took.
func (q *accountQueue) note(took time.Duration) {
	if q.pace == 0 {
		q.pace = took
	}
	q.pace += (took - q.pace) / 4
}

// idle reports whether nothing waits or is in progress.
func (q *accountQueue) idle() bool { return len(q.jobs) == 0 && q.inFlight == 0 }

// forgettable reports whether the queue is idle and its last failure is long ago.
func (q *accountQueue) forgettable(now time.Time) bool {
	return q.idle() && now.Sub(q.breaker.failedAt) > maxIdle
}

const (
	// BreakerThreshold is how many failures in a row open a breaker.
	BreakerThreshold = 5
	// A breaker stays open for minOpen at first, and twice as long each time.
	minOpen = 5 * time.Second
	// MaxOpen is the longest that a breaker stays open.
	MaxOpen = time.Minute
	// maxIdle is how long the failures of an endpoint without events are remembered.
	maxIdle = time.Hour
)

// breaker is a circuit breaker: it stops attempts to an endpoint that only fails. The zero breaker is closed. After it
// has been open, one attempt at a time finds out whether the endpoint has recovered. It counts the attempts of this
// dispatcher; what all must agree on is in Redis.
type breaker struct {
	failures, successes int // in a row
	failedAt, openUntil time.Time
}

// remaining is how long the breaker stays open.
func (b *breaker) remaining(now time.Time) time.Duration { return max(0, b.openUntil.Sub(now)) }

// failing reports whether the last attempt failed.
func (b *breaker) failing() bool { return b.failures > 0 }

func (b *breaker) succeeded() { *b = breaker{successes: b.successes + 1} }

// failed counts a failure and reports whether the breaker is open now.
func (b *breaker) failed(now time.Time) bool {
	b.failures++
	b.successes, b.failedAt = 0, now
	if b.failures < BreakerThreshold {
		return false
	}
	open := MaxOpen
	if doublings := b.failures - BreakerThreshold; doublings < 4 {
		open = min(MaxOpen, minOpen<<doublings)
	}
	b.openUntil = now.Add(open)
	return true
}
