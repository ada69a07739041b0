package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// queueFixture has queues whose attempts wait for the test, and a clock of the test.
type queueFixture struct {
	*endpointQueues

	mu       sync.Mutex
	clock    time.Time
	started  []string
	deferred []string
	drains   int
	answers  map[string]chan attemptResult
}

func newQueueFixture(limits queueLimits) *queueFixture {
	f := &queueFixture{clock: noon, answers: map[string]chan attemptResult{}}
	f.endpointQueues = &endpointQueues{limits: limits, now: f.now, attempt: f.attempt, deferJobs: f.deferJobs,
		drained: func() { f.drains++ }}
	return f
}

func (f *queueFixture) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clock
}

func (f *queueFixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock = f.clock.Add(d)
}

func (f *queueFixture) answer(id string) chan attemptResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers[id] == nil {
		f.answers[id] = make(chan attemptResult, 1)
	}
	return f.answers[id]
}

func (f *queueFixture) attempt(_ context.Context, j job) attemptResult {
	id := j.lease.Event.ID
	answer := f.answer(id)
	f.mu.Lock()
	f.started = append(f.started, id)
	f.mu.Unlock()
	return <-answer
}

func (f *queueFixture) deferJobs(_ context.Context, _ time.Duration, reason string, jobs ...job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range jobs {
		f.deferred = append(f.deferred, j.lease.Event.ID+" "+reason)
	}
}

func (f *queueFixture) offerOf(merchant string, n int) (delay time.Duration, reason string) {
	id := fmt.Sprintf("%s%d", merchant, n)
	delay, reason, _ = f.offer(context.Background(), job{
		lease:   outbox.Lease{Event: outbox.Event{ID: id, MerchantID: merchant}},
		startBy: f.now().Add(13 * time.Second), leaseEnd: f.now().Add(30 * time.Second),
	})
	return delay, reason
}

// prove makes endpoints that have had a success, so that two attempts of each may be in progress.
func (f *queueFixture) prove(merchants ...string) {
	for _, merchant := range merchants {
		f.queue(outbox.Event{MerchantID: merchant}).breaker.successes = 1
	}
}

func (f *queueFixture) seen(of *[]string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(slices.Values(*of))
}

func (f *queueFixture) awaitStarted(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("started are %v", want), func() bool { return slices.Equal(f.seen(&f.started), want) })
}

func (f *queueFixture) awaitDeferred(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("deferred are %v", want), func() bool { return slices.Equal(f.seen(&f.deferred), want) })
}

func TestEndpointsTakeTurnsForTheFreePlaces(t *testing.T) {
	f := newQueueFixture(queueLimits{endpointAttempts: 2, attempts: 3, jobsPerAttempt: 10})
	f.prove("a", "b")
	for n := range 4 {
		f.offerOf("a", n)
	}
	f.offerOf("b", 0)
	f.awaitStarted(t, "a0", "a1", "b0")
	f.offerOf("c", 0) // all places are taken, and a is not ready
	f.offerOf("b", 1)
	f.answer("a0") <- succeeded
	f.awaitStarted(t, "a0", "a1", "b0", "c0") // c came before a and b could have another
	f.answer("b0") <- succeeded
	f.awaitStarted(t, "a0", "a1", "b0", "b1", "c0")
	for _, id := range []string{"a1", "a2", "a3", "b1", "c0"} {
		f.answer(id) <- succeeded
	}
	f.awaitStarted(t, "a0", "a1", "a2", "a3", "b0", "b1", "c0")
	f.close(t.Context())
	if !f.wait(patience) {
		t.Fatal("attempts never ended")
	}
	for _, queues := range f.queues {
		if len(queues) != 0 || f.attemptsInFlight() != 0 || f.waiting != 0 {
			t.Errorf("left are %d queues, %d attempts, %d events", len(queues), f.attemptsInFlight(), f.waiting)
		}
	}
}

// Else a hundred endpoints that hang would take all places.
func TestAnEndpointGetsMorePlacesWithEachSuccess(t *testing.T) {
	f := newQueueFixture(queueLimits{endpointAttempts: 3, attempts: 100, jobsPerAttempt: 10})
	for n := range 9 {
		f.offerOf("a", n)
	}
	f.awaitStarted(t, "a0")
	f.answer("a0") <- succeeded
	f.awaitStarted(t, "a0", "a1", "a2")
	f.answer("a1") <- succeeded
	f.awaitStarted(t, "a0", "a1", "a2", "a3", "a4")
	f.answer("a2") <- succeeded
	f.awaitStarted(t, "a0", "a1", "a2", "a3", "a4", "a5") // no more than three at a time
	f.answer("a3") <- failed
	for n := 4; n < 9; n++ {
		f.answer(fmt.Sprintf("a%d", n)) <- succeeded
	}
	f.awaitStarted(t, "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8")
	f.close(t.Context())
	f.wait(patience)
}

func TestAFailingEndpointIsTriedOneAtATimeAndThenNotAtAll(t *testing.T) {
	f := newQueueFixture(queueLimits{endpointAttempts: 2, attempts: 100, jobsPerAttempt: 10})
	f.prove("a")
	for n := range 9 {
		f.offerOf("a", n)
	}
	f.awaitStarted(t, "a0", "a1")
	f.answer("a0") <- failed
	f.answer("a1") <- failed
	for n, started := 2, []string{"a0", "a1"}; n < breakerThreshold; n++ {
		started = append(started, fmt.Sprintf("a%d", n))
		f.awaitStarted(t, started...)
		f.answer(started[n]) <- failed
	}
	f.awaitDeferred(t, "a5 breaker", "a6 breaker", "a7 breaker", "a8 breaker")
	if after, why := f.offerOf("a", 9); why != deferredBreaker || after != minOpen {
		t.Errorf("while it is open: %s, after %s", why, after)
	}
	if _, why := f.offerOf("b", 0); why != "" {
		t.Errorf("another endpoint: %s", why)
	}
	f.pass(minOpen)
	f.offerOf("a", 10)
	f.offerOf("a", 11)
	f.awaitStarted(t, "a0", "a1", "a10", "a2", "a3", "a4", "b0")
	f.answer("a10") <- succeeded
	f.offerOf("a", 12)
	f.awaitStarted(t, "a0", "a1", "a10", "a11", "a12", "a2", "a3", "a4", "b0")
	for _, id := range []string{"a11", "a12", "b0"} {
		f.answer(id) <- succeeded
	}
	f.close(t.Context())
	f.wait(patience)
}

// Else an attempt could go on while another dispatcher has the event.
func TestNoAttemptBeginsThatCouldOutliveItsLease(t *testing.T) {
	f := newQueueFixture(queueLimits{endpointAttempts: 1, attempts: 1, jobsPerAttempt: 10})
	f.offerOf("a", 0)
	f.offerOf("a", 1)
	f.awaitStarted(t, "a0")
	f.pass(13*time.Second + time.Millisecond)
	f.offerOf("a", 2)
	f.answer("a0") <- succeeded
	f.awaitDeferred(t, "a1 busy")
	f.awaitStarted(t, "a0", "a2")
	f.answer("a2") <- succeeded
	f.close(t.Context())
	f.wait(patience)
}

func TestWhatWaitsIsBounded(t *testing.T) {
	f := newQueueFixture(queueLimits{endpointAttempts: 1, attempts: 2, jobsPerAttempt: 2})
	bucket := outbox.Event{MerchantID: "a"}.Bucket()
	want := func(when string, wantFull []string, wantRoom bool) {
		t.Helper()
		if full, room := f.room(bucket); !slices.Equal(full, wantFull) || room != wantRoom {
			t.Errorf("%s: full are %v, room for others: %t", when, full, room)
		}
	}
	f.offerOf("a", 0)
	f.offerOf("a", 1)
	want("one attempt and one waiting event", nil, true)
	f.offerOf("a", 2)
	want("two waiting events", []string{"a"}, true)
	if full, _ := f.room(bucket + 1); full != nil {
		t.Errorf("in another bucket %v are full", full)
	}
	for _, merchant := range []string{"b", "c", "d"} {
		f.offerOf(merchant, 0) // one of them has the other place
	}
	want("four waiting events", []string{"a"}, false)
	for _, id := range []string{"a0", "b0", "c0"} {
		f.answer(id) <- succeeded
	}
	f.awaitStarted(t, "a0", "a1", "b0", "c0", "d0")
	want("half of the queue", nil, true)
	if f.drains != 1 {
		t.Errorf("%d polls were requested", f.drains)
	}
	f.close(t.Context())
	f.awaitDeferred(t, "a2 stopping")
	if after, why := f.offerOf("e", 0); why != deferredStopping || after != 0 {
		t.Errorf("after it was closed: %s, after %s", why, after)
	}
	f.answer("a1") <- succeeded
	f.answer("d0") <- succeeded
	f.wait(patience)
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
