package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/dispatcher/attempt"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// queueFixture has queues whose attempts wait for the test, and a clock of the test.
type queueFixture struct {
	*Queues

	mu       sync.Mutex
	clock    time.Time
	started  []string
	deferred []string
	answers  map[string]chan attempt.Result
}

func newQueueFixture(limits Limits) *queueFixture {
	f := &queueFixture{clock: noon, answers: map[string]chan attempt.Result{}}
	f.Queues = New(f, limits, f.now)
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

func (f *queueFixture) answer(id string) chan attempt.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers[id] == nil {
		f.answers[id] = make(chan attempt.Result, 1)
	}
	return f.answers[id]
}

func (f *queueFixture) Attempt(_ context.Context, j attempt.Job) attempt.Result {
	id := j.Lease.Event.ID
	answer := f.answer(id)
	f.mu.Lock()
	f.started = append(f.started, id)
	f.mu.Unlock()
	return <-answer
}

func (f *queueFixture) Defer(_ context.Context, _ time.Duration, reason string, jobs ...attempt.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range jobs {
		f.deferred = append(f.deferred, j.Lease.Event.ID+" "+reason)
	}
}

// newJob returns a job of a merchant. What is before a slash in its name is the namespace; else it has one of its own.
func (f *queueFixture) newJob(merchant string, n int) attempt.Job {
	namespace, _, _ := strings.Cut(merchant, "/")
	return attempt.Job{
		Lease:    outbox.Lease{Event: feed.Event{ID: fmt.Sprintf("%s%d", merchant, n), MerchantID: merchant}},
		Endpoint: endpoints.Endpoint{Merchant: types.NamespacedName{Namespace: namespace}},
		StartBy:  f.now().Add(13 * time.Second), LeaseEnd: f.now().Add(30 * time.Second),
	}
}

func (f *queueFixture) offerJob(merchant string, n int) (delay time.Duration, reason string) {
	delay, reason, _ = f.Offer(context.Background(), f.newJob(merchant, n))
	return delay, reason
}

// prove makes endpoints that have had a success, so that two attempts of each may be in progress.
func (f *queueFixture) prove(merchants ...string) {
	for _, merchant := range merchants {
		f.queue(f.newJob(merchant, 0)).breaker.successes = 1
	}
}

func (f *queueFixture) seen(of *[]string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(slices.Values(*of))
}

func (f *queueFixture) awaitStarted(t *testing.T, want ...string) {
	t.Helper()
	dispatchertest.Eventually(t, fmt.Sprintf("started are %v", want), func() bool { return slices.Equal(f.seen(&f.started), want) })
}

func (f *queueFixture) awaitInFlight(t *testing.T, want int) {
	t.Helper()
	dispatchertest.Eventually(t, fmt.Sprintf("%d attempts are in progress", want), func() bool { return f.InFlight() == want })
}

func (f *queueFixture) awaitDeferred(t *testing.T, want ...string) {
	t.Helper()
	dispatchertest.Eventually(t, fmt.Sprintf("deferred are %v", want), func() bool { return slices.Equal(f.seen(&f.deferred), want) })
}

func TestTake_EndpointsTakeTurns(t *testing.T) {
	f := newQueueFixture(Limits{Concurrency: 2, MaxInFlight: 3, JobsPerAttempt: 10})
	f.prove("a", "b")
	for n := range 4 {
		f.offerJob("a", n)
	}
	f.offerJob("b", 0)
	f.awaitStarted(t, "a0", "a1", "b0")
	f.offerJob("c", 0) // all places are taken, and a is not ready
	f.offerJob("b", 1)
	f.answer("a0") <- attempt.Succeeded
	f.awaitStarted(t, "a0", "a1", "b0", "c0") // c came before a and b could have another
	f.answer("b0") <- attempt.Succeeded
	f.awaitStarted(t, "a0", "a1", "b0", "b1", "c0")
	for _, id := range []string{"a1", "a2", "a3", "b1", "c0"} {
		f.answer(id) <- attempt.Succeeded
	}
	f.awaitStarted(t, "a0", "a1", "a2", "a3", "b0", "b1", "c0")
	f.Close(t.Context())
	if !f.Wait(dispatchertest.Patience) {
		t.Fatal("attempts never ended")
	}
	for _, queues := range f.queues {
		if len(queues) != 0 || f.InFlight() != 0 || f.waiting != 0 {
			t.Errorf("left are %d queues, %d attempts, %d events", len(queues), f.InFlight(), f.waiting)
		}
	}
	if len(f.tenants) != 0 {
		t.Errorf("left are %d namespaces", len(f.tenants))
	}
}

// Else a hundred endpoints that hang would take all places.
func TestTake_MorePlacesWithEachSuccess(t *testing.T) {
	f := newQueueFixture(Limits{Concurrency: 3, MaxInFlight: 100, JobsPerAttempt: 10})
	for n := range 9 {
		f.offerJob("a", n)
	}
	f.awaitStarted(t, "a0")
	f.answer("a0") <- attempt.Succeeded
	f.awaitStarted(t, "a0", "a1", "a2")
	f.answer("a1") <- attempt.Succeeded
	f.awaitStarted(t, "a0", "a1", "a2", "a3", "a4")
	f.answer("a2") <- attempt.Succeeded
	f.awaitStarted(t, "a0", "a1", "a2", "a3", "a4", "a5") // no more than three at a time
	f.answer("a3") <- attempt.Failed
	for n := 4; n < 9; n++ {
		f.answer(fmt.Sprintf("a%d", n)) <- attempt.Succeeded
	}
	f.awaitStarted(t, "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8")
	f.Close(t.Context())
	f.Wait(dispatchertest.Patience)
}

// A failing endpoint is tried one event at a time, and then not at all.
func TestTake_FailingEndpoint(t *testing.T) {
	f := newQueueFixture(Limits{Concurrency: 2, MaxInFlight: 100, JobsPerAttempt: 10})
	f.prove("a")
	for n := range 9 {
		f.offerJob("a", n)
	}
	f.awaitStarted(t, "a0", "a1")
	f.answer("a0") <- attempt.Failed
	f.answer("a1") <- attempt.Failed
	for n, started := 2, []string{"a0", "a1"}; n < BreakerThreshold; n++ {
		started = append(started, fmt.Sprintf("a%d", n))
		f.awaitStarted(t, started...)
		f.answer(started[n]) <- attempt.Failed
	}
	f.awaitDeferred(t, "a5 breaker", "a6 breaker", "a7 breaker", "a8 breaker")
	if after, why := f.offerJob("a", 9); why != attempt.DeferredBreaker || after != minOpen {
		t.Errorf("while it is open: %s, after %s", why, after)
	}
	if _, why := f.offerJob("b", 0); why != "" {
		t.Errorf("another Endpoint: %s", why)
	}
	f.pass(minOpen)
	f.offerJob("a", 10)
	f.offerJob("a", 11)
	f.awaitStarted(t, "a0", "a1", "a10", "a2", "a3", "a4", "b0")
	f.answer("a10") <- attempt.Succeeded
	f.offerJob("a", 12)
	f.awaitStarted(t, "a0", "a1", "a10", "a11", "a12", "a2", "a3", "a4", "b0")
	for _, id := range []string{"a11", "a12", "b0"} {
		f.answer(id) <- attempt.Succeeded
	}
	f.Close(t.Context())
	f.Wait(dispatchertest.Patience)
}

// Else an attempt could go on while another dispatcher has the event.
func TestWork_LateJobIsDeferred(t *testing.T) {
	f := newQueueFixture(Limits{Concurrency: 1, MaxInFlight: 1, JobsPerAttempt: 10})
	f.offerJob("a", 0)
	f.offerJob("a", 1)
	f.awaitStarted(t, "a0")
	f.pass(13*time.Second + time.Millisecond)
	f.offerJob("a", 2)
	f.answer("a0") <- attempt.Succeeded
	f.awaitDeferred(t, "a1 busy")
	f.awaitStarted(t, "a0", "a2")
	f.answer("a2") <- attempt.Succeeded
	f.Close(t.Context())
	f.Wait(dispatchertest.Patience)
}

func TestRoom_BoundsWaitingJobs(t *testing.T) {
	f := newQueueFixture(Limits{Concurrency: 1, MaxInFlight: 2, JobsPerAttempt: 2})
	bucket := feed.Event{MerchantID: "a"}.Bucket()
	want := func(when string, wantRoom map[string]int, wantEach int) {
		t.Helper()
		if room, each := f.Room(bucket); !maps.Equal(room, wantRoom) || each != wantEach {
			t.Errorf("%s: room for %v, and for %d of each other", when, room, each)
		}
	}
	want("nothing here", map[string]int{}, 2)
	f.offerJob("a", 0)
	f.offerJob("a", 1)
	want("one attempt and one waiting event", map[string]int{"a": 1}, 2)
	f.offerJob("a", 2)
	want("two waiting events", map[string]int{"a": 0}, 2)
	if full, _ := f.Room(bucket + 1); len(full) != 0 {
		t.Errorf("in another bucket %v are full", full)
	}
	for _, merchant := range []string{"b", "c", "d"} {
		f.offerJob(merchant, 0) // one of them has the other place
	}
	want("four waiting events", map[string]int{"a": 0}, 1)
	for n := range 4 {
		f.offerJob("e", n)
	}
	want("eight waiting events", map[string]int{"a": 0}, 0)
	for _, id := range []string{"b0", "c0", "d0", "e0", "e1", "e2", "e3", "a0"} {
		f.answer(id) <- attempt.Succeeded
	}
	f.awaitStarted(t, "a0", "a1", "b0", "c0", "d0", "e0", "e1", "e2", "e3")
	want("half of the queue", map[string]int{"a": 1}, 2)
	if len(f.Drained) != 1 {
		t.Error("no poll was requested")
	}
	f.Close(t.Context())
	f.awaitDeferred(t, "a2 stopping")
	if after, why := f.offerJob("e", 0); why != attempt.DeferredStopping || after != 0 {
		t.Errorf("after it was closed: %s, after %s", why, after)
	}
	f.answer("a1") <- attempt.Succeeded
	f.Wait(dispatchertest.Patience)
}

// An endpoint that answers slowly has fewer events waiting here: they would keep others' out. Its free attempts are always filled.
func TestQueueLimits_Room(t *testing.T) {
	limits := Limits{Concurrency: 8, MaxInFlight: 512, JobsPerAttempt: 16}
	for name, row := range map[string]struct {
		took              time.Duration
		inFlight, waiting int
		want              int
	}{
		"not known":             {0, 0, 0, 8 * 17},
		"quick":                 {10 * time.Millisecond, 8, 20, 8*16 - 20},
		"quick, nearly full":    {10 * time.Millisecond, 8, 65, 0},
		"100 ms":                {100 * time.Millisecond, 8, 0, 8 * 5},
		"slow":                  {10 * time.Second, 0, 0, 8},
		"slow, one place left":  {10 * time.Second, 7, 0, 1},
		"slow, no place left":   {10 * time.Second, 8, 0, 0},
		"slow, nothing started": {10 * time.Second, 0, 9, 0},
	} {
		queue := &accountQueue{breaker: breaker{successes: 7}, inFlight: row.inFlight, jobs: make([]attempt.Job, row.waiting)}
		queue.note(row.took)
		if got := limits.free(queue); got != row.want {
			t.Errorf("%s: room for %d, want %d", name, got, row.want)
		}
	}
}

// Sixteen merchants answer slowly, and well: each may have eight attempts. All of them together do not keep others waiting, of the same
// namespace or of another.
func TestTake_SlowEndpoints(t *testing.T) {
	f := newQueueFixture(Limits{Concurrency: 8, MaxInFlight: 64, JobsPerAttempt: 16})
	slow := func(i int) string { return fmt.Sprintf("slow/%c", 'a'+i) }
	for i := range 16 {
		f.queue(f.newJob(slow(i), 0)).breaker.successes = 7
	}
	for n := range 8 {
		for i := range 16 {
			f.offerJob(slow(i), n)
		}
	}
	const ofSlow, ofQuick, ofOthers = 42, 3, 64 - 42 - 3 // the rest is for endpoints and namespaces that have none in progress
	f.awaitInFlight(t, ofSlow)
	for i := range ofQuick + 4 {
		f.offerJob(fmt.Sprintf("slow/quick%d-", i), 0)
	}
	f.awaitInFlight(t, ofSlow+ofQuick)
	for i := range ofOthers + 2 {
		f.offerJob(fmt.Sprintf("other%d/quick-", i), 0)
	}
	f.awaitInFlight(t, 64)

	// The next places go to those who have the fewest in progress: namespaces first, then endpoints.
	for i := range 2 {
		f.answer(slow(i) + "0") <- attempt.Succeeded
		want := fmt.Sprintf("other%d/quick-0", ofOthers+i)
		dispatchertest.Eventually(t, want+" has the place", func() bool { return slices.Contains(f.seen(&f.started), want) })
	}
	for i := 2; i < 16; i++ {
		f.answer(slow(i) + "0") <- attempt.Succeeded
		f.answer(slow(i) + "1") <- attempt.Succeeded
	}
	for i := range ofQuick + 4 {
		want := fmt.Sprintf("slow/quick%d-0", i)
		dispatchertest.Eventually(t, want+" has a place", func() bool { return slices.Contains(f.seen(&f.started), want) })
	}
	f.finishAll(t)
}

// All 500 endpoints of a namespace hang. The endpoints of another namespace have their attempts all
// the same, several of each at once.
func TestTake_HangingNamespace(t *testing.T) {
	f := newQueueFixture(Limits{Concurrency: 8, MaxInFlight: 512, JobsPerAttempt: 16})
	for i := range 500 {
		f.offerJob(fmt.Sprintf("hanging/%03d-", i), 0)
	}
	const proven = "victim/proven-"
	f.queue(f.newJob(proven, 0)).breaker.successes = 7
	for n := range 8 {
		f.offerJob(proven, n)
	}
	for i := range 8 {
		f.offerJob(fmt.Sprintf("victim/new%d-", i), 0)
	}
	dispatchertest.Eventually(t, "all attempts of the other namespace have started", func() bool {
		victims := 0
		for _, id := range f.seen(&f.started) {
			if strings.HasPrefix(id, "victim/") {
				victims++
			}
		}
		return victims == 16
	})
	f.finishAll(t)
}

// finishAll ends all attempts, and looks for what is left.
func (f *queueFixture) finishAll(t *testing.T) {
	t.Helper()
	f.Close(t.Context())
	dispatchertest.Eventually(t, "all attempts have ended", func() bool {
		for _, id := range f.seen(&f.started) {
			select {
			case f.answer(id) <- attempt.Succeeded:
			default: // it was answered before
			}
		}
		return f.InFlight() == 0
	})
	f.Wait(dispatchertest.Patience)
	if len(f.ready) != 0 || f.inFlight != 0 || f.waiting != 0 {
		t.Errorf("left are %d ready namespaces, %d attempts, %d events", len(f.ready), f.inFlight, f.waiting)
	}
}

// A namespace alone leaves some places free. While another one waits, it gets no more until they have equally many.
func TestTake_NamespacesShare(t *testing.T) {
	f := newQueueFixture(Limits{Concurrency: 1, MaxInFlight: 16, JobsPerAttempt: 16})
	awaitStarted := func(want int) {
		t.Helper()
		dispatchertest.Eventually(t, fmt.Sprintf("%d attempts have started", want), func() bool { return len(f.seen(&f.started)) == want })
	}
	for i := range 40 {
		f.offerJob(fmt.Sprintf("big/%02d-", i), 0)
	}
	const alone, beside, shared = 12, 3, 13
	awaitStarted(alone)
	for i := range 12 {
		f.offerJob(fmt.Sprintf("small/%02d-", i), 0)
	}
	awaitStarted(alone + beside)
	for _, id := range f.seen(&f.started) {
		f.answer(id) <- attempt.Succeeded
	}
	awaitStarted(alone + beside + shared)
	f.mu.Lock()
	inFlight := map[string]int{}
	for _, id := range f.started[alone+beside:] {
		namespace, _, _ := strings.Cut(id, "/")
		inFlight[namespace]++
	}
	f.mu.Unlock()
	if min(inFlight["big"], inFlight["small"]) != shared/2 {
		t.Errorf("in progress are %v, want half of %d of each", inFlight, shared)
	}
	f.finishAll(t)
}

// An endpoint that failed and gets no more events is forgotten, and so is its namespace.
func TestRoom_ForgetsOldFailures(t *testing.T) {
	f := newQueueFixture(Limits{Concurrency: 1, MaxInFlight: 8, JobsPerAttempt: 16})
	bucket := feed.Event{MerchantID: "a"}.Bucket()
	f.offerJob("a", 0)
	f.answer("a0") <- attempt.Failed
	f.awaitInFlight(t, 0)
	f.pass(maxIdle)
	if room, _ := f.Room(bucket); len(room) != 1 {
		t.Error("the failure is forgotten already")
	}
	f.pass(time.Second)
	if room, _ := f.Room(bucket); len(room) != 0 || len(f.tenants) != 0 {
		t.Errorf("after an hour there are %v, and %d namespaces", room, len(f.tenants))
	}
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestBreaker_OpensAfterFailuresInARow(t *testing.T) {
	var b breaker
	for i := range BreakerThreshold {
		if b.remaining(noon) != 0 {
			t.Fatalf("open after %d failures", i)
		}
		if open := b.failed(noon); open != (i == BreakerThreshold-1) {
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

func TestBreaker_OpenTimes(t *testing.T) {
	var b breaker
	var got []time.Duration
	for range BreakerThreshold + 60 {
		if b.failed(noon) {
			got = append(got, b.remaining(noon))
		}
	}
	for i, want := range []int{5, 10, 20, 40, 60, 60, 60} {
		if got[i] != time.Duration(want)*time.Second {
			t.Errorf("break %d took %s, want %d s", i, got[i], want)
		}
	}
	if last := got[len(got)-1]; last != MaxOpen {
		t.Errorf("the last break took %s", last)
	}
}
