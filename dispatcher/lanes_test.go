package dispatcher

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// track is lanes whose attempts wait for the test, by a clock of the test.
type track struct {
	*lanes

	mu      sync.Mutex
	clock   time.Time
	begun   []string
	putBack []string
	answers map[string]chan verdict
}

func newTrack(limits lanesLimits) *track {
	tr := &track{clock: noon, answers: map[string]chan verdict{}}
	tr.lanes = &lanes{limits: limits, now: tr.now, attempt: tr.attempt, putOff: tr.putOff, lanes: map[string]*lane{}}
	return tr
}

func (tr *track) now() time.Time {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.clock
}

func (tr *track) pass(d time.Duration) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.clock = tr.clock.Add(d)
}

func (tr *track) answer(id string) chan verdict {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.answers[id] == nil {
		tr.answers[id] = make(chan verdict, 1)
	}
	return tr.answers[id]
}

func (tr *track) attempt(p parcel) verdict {
	id := p.lease.Event.ID
	answer := tr.answer(id)
	tr.mu.Lock()
	tr.begun = append(tr.begun, id)
	tr.mu.Unlock()
	return <-answer
}

func (tr *track) putOff(_ time.Duration, why string, parcels ...parcel) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, p := range parcels {
		tr.putBack = append(tr.putBack, p.lease.Event.ID+" "+why)
	}
}

func (tr *track) offerOf(merchant string, n int) (after time.Duration, why string) {
	id := fmt.Sprintf("%s%d", merchant, n)
	after, why, _ = tr.offer(parcel{
		lease:   store.Lease{Event: outbox.Event{ID: id, MerchantID: merchant}},
		startBy: tr.now().Add(13 * time.Second), leaseEnd: tr.now().Add(30 * time.Second),
	})
	return after, why
}

func (tr *track) seen(of *[]string) []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Sorted(slices.Values(*of))
}

func (tr *track) awaitBegun(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("begun are %v", want), func() bool { return slices.Equal(tr.seen(&tr.begun), want) })
}

func (tr *track) awaitPutBack(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("put back are %v", want), func() bool { return slices.Equal(tr.seen(&tr.putBack), want) })
}

func TestALaneTakesItsShareAndNoMore(t *testing.T) {
	tr := newTrack(lanesLimits{perEndpoint: 2, inAll: 3, queue: 2, queued: 100})
	for n := range 4 {
		if _, why := tr.offerOf("a", n); why != "" {
			t.Fatalf("event %d of a: %s", n, why)
		}
	}
	if after, why := tr.offerOf("a", 4); why != deferredBusy || after != busyPause {
		t.Errorf("with a full queue: %s, after %s", why, after)
	}
	tr.offerOf("b", 0)
	tr.awaitBegun(t, "a0", "a1", "b0")
	tr.offerOf("c", 0) // all places are taken, and a stands in no line
	tr.offerOf("b", 1)
	tr.answer("a0") <- took
	tr.awaitBegun(t, "a0", "a1", "b0", "c0") // c came before a and b could have another
	tr.answer("b0") <- took
	tr.awaitBegun(t, "a0", "a1", "b0", "b1", "c0")
	for _, id := range []string{"a1", "a2", "a3", "b1", "c0"} {
		tr.answer(id) <- took
	}
	tr.awaitBegun(t, "a0", "a1", "a2", "a3", "b0", "b1", "c0")
	tr.close()
	if !tr.await(patience) {
		t.Fatal("attempts never ended")
	}
	if len(tr.lanes.lanes) != 0 || tr.underWay() != 0 || tr.queued != 0 {
		t.Errorf("left are %d lanes, %d attempts, %d events", len(tr.lanes.lanes), tr.underWay(), tr.queued)
	}
}

func TestAFailingEndpointIsTriedOneAtATimeAndThenNotAtAll(t *testing.T) {
	tr := newTrack(lanesLimits{perEndpoint: 3, inAll: 100, queue: 10, queued: 100})
	for n := range 9 {
		tr.offerOf("a", n)
	}
	tr.awaitBegun(t, "a0", "a1", "a2")
	for n := range 3 {
		tr.answer(fmt.Sprintf("a%d", n)) <- failed
	}
	tr.awaitBegun(t, "a0", "a1", "a2", "a3")
	tr.answer("a3") <- failed
	tr.awaitBegun(t, "a0", "a1", "a2", "a3", "a4")
	tr.answer("a4") <- failed // the fifth in a row
	tr.awaitPutBack(t, "a5 breaker", "a6 breaker", "a7 breaker", "a8 breaker")
	if after, why := tr.offerOf("a", 9); why != deferredBroken || after != firstBreak {
		t.Errorf("while it is open: %s, after %s", why, after)
	}
	if _, why := tr.offerOf("b", 0); why != "" {
		t.Errorf("another endpoint: %s", why)
	}
	tr.pass(firstBreak)
	tr.offerOf("a", 10)
	tr.offerOf("a", 11)
	tr.awaitBegun(t, "a0", "a1", "a10", "a2", "a3", "a4", "b0")
	tr.answer("a10") <- took
	tr.offerOf("a", 12)
	tr.awaitBegun(t, "a0", "a1", "a10", "a11", "a12", "a2", "a3", "a4", "b0")
	for _, id := range []string{"a11", "a12", "b0"} {
		tr.answer(id) <- took
	}
	tr.close()
	tr.await(patience)
}

// Else an attempt could go on while another dispatcher has the event.
func TestNoAttemptBeginsThatCouldOutliveItsLease(t *testing.T) {
	tr := newTrack(lanesLimits{perEndpoint: 1, inAll: 1, queue: 10, queued: 100})
	tr.offerOf("a", 0)
	tr.offerOf("a", 1)
	tr.awaitBegun(t, "a0")
	tr.pass(13*time.Second + time.Millisecond)
	tr.offerOf("a", 2)
	tr.answer("a0") <- took
	tr.awaitPutBack(t, "a1 busy")
	tr.awaitBegun(t, "a0", "a2")
	tr.answer("a2") <- took
	tr.close()
	tr.await(patience)
}

func TestWhatWaitsForAllEndpointsIsBounded(t *testing.T) {
	tr := newTrack(lanesLimits{perEndpoint: 1, inAll: 1, queue: 10, queued: 2})
	for n, want := range []string{"", "", "", deferredBusy} {
		if _, why := tr.offerOf(string(rune('a'+n)), 0); why != want {
			t.Errorf("event %d: %q, want %q", n, why, want)
		}
	}
	tr.close()
	tr.awaitPutBack(t, "b0 stopping", "c0 stopping")
	if after, why := tr.offerOf("e", 0); why != deferredStopping || after != 0 {
		t.Errorf("after it was closed: %s, after %s", why, after)
	}
	tr.answer("a0") <- took
	tr.await(patience)
}
