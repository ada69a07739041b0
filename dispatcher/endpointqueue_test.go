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
	answers  map[string]chan attemptResult
}

func newQueueFixture(limits queueLimits) *queueFixture {
	f := &queueFixture{clock: noon, answers: map[string]chan attemptResult{}}
	f.endpointQueues = &endpointQueues{limits: limits, now: f.now, attempt: f.attempt, deferJobs: f.deferJobs, queues: map[string]*endpointQueue{}}
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

func TestAnEndpointQueueTakesItsShareAndNoMore(t *testing.T) {
	f := newQueueFixture(queueLimits{endpointAttempts: 2, attempts: 3, endpointJobs: 2, jobs: 100})
	for n := range 4 {
		if _, why := f.offerOf("a", n); why != "" {
			t.Fatalf("event %d of a: %s", n, why)
		}
	}
	if after, why := f.offerOf("a", 4); why != deferredBusy || after != busyDelay {
		t.Errorf("with a full queue: %s, after %s", why, after)
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
	if len(f.queues) != 0 || f.attemptsInFlight() != 0 || f.waiting != 0 {
		t.Errorf("left are %d queues, %d attempts, %d events", len(f.queues), f.attemptsInFlight(), f.waiting)
	}
}

func TestAFailingEndpointIsTriedOneAtATimeAndThenNotAtAll(t *testing.T) {
	f := newQueueFixture(queueLimits{endpointAttempts: 3, attempts: 100, endpointJobs: 10, jobs: 100})
	for n := range 9 {
		f.offerOf("a", n)
	}
	f.awaitStarted(t, "a0", "a1", "a2")
	for n := range 3 {
		f.answer(fmt.Sprintf("a%d", n)) <- failed
	}
	f.awaitStarted(t, "a0", "a1", "a2", "a3")
	f.answer("a3") <- failed
	f.awaitStarted(t, "a0", "a1", "a2", "a3", "a4")
	f.answer("a4") <- failed // the fifth in a row
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
	f := newQueueFixture(queueLimits{endpointAttempts: 1, attempts: 1, endpointJobs: 10, jobs: 100})
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

func TestWhatWaitsForAllEndpointsIsBounded(t *testing.T) {
	f := newQueueFixture(queueLimits{endpointAttempts: 1, attempts: 1, endpointJobs: 10, jobs: 2})
	for n, want := range []string{"", "", "", deferredBusy} {
		if _, why := f.offerOf(string(rune('a'+n)), 0); why != want {
			t.Errorf("event %d: %q, want %q", n, why, want)
		}
	}
	f.close(t.Context())
	f.awaitDeferred(t, "b0 stopping", "c0 stopping")
	if after, why := f.offerOf("e", 0); why != deferredStopping || after != 0 {
		t.Errorf("after it was closed: %s, after %s", why, after)
	}
	f.answer("a0") <- succeeded
	f.wait(patience)
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestABreakerOpensAfterFailuresInARow(t *testing.T) {
	var b breaker
	for i := range breakerThreshold {
		if b.remaining(noon) != 0 {
			t.Fatalf("open after %d failures", i)
		}
		if open := b.failed(noon); open != (i == breakerThreshold-1) {
			t.Fatalf("after %d failures it says that it is open: %t", i+1, open)
		}
	}
	if got := b.remaining(noon); got != minOpen {
		t.Errorf("open for %s, want %s", got, minOpen)
	}
	if got := b.remaining(noon.Add(minOpen)); got != 0 {
		t.Errorf("open for another %s", got)
	}
	if !b.failing() {
		t.Error("trusted before it was tried")
	}
	b.succeeded()
	if b.failing() || b.remaining(noon) != 0 {
		t.Error("not closed by a success")
	}
	if b.failed(noon) {
		t.Error("failures before a success count")
	}
}

func TestABreakerStaysOpenLongerEachTimeUpToALimit(t *testing.T) {
	var b breaker
	var got []time.Duration
	for range breakerThreshold + 60 {
		if b.failed(noon) {
			got = append(got, b.remaining(noon))
		}
	}
	for i, want := range []int{5, 10, 20, 40, 60, 60, 60} {
		if got[i] != time.Duration(want)*time.Second {
			t.Errorf("break %d took %s, want %d s", i, got[i], want)
		}
	}
	if last := got[len(got)-1]; last != maxOpen {
		t.Errorf("the last break took %s", last)
	}
}
