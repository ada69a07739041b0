package dispatcher

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// calls is how often Redis has run a command.
func (f testFixture) calls(t *testing.T, command string) int {
	t.Helper()
	statistics, err := f.Redis(t).Info(t.Context(), "commandstats").Result()
	dispatchertest.Must(t, err)
	for line := range strings.Lines(statistics) {
		if rest, found := strings.CutPrefix(line, "cmdstat_"+command+":calls="); found {
			var calls int
			_, err := fmt.Sscanf(rest, "%d,", &calls)
			dispatchertest.Must(t, err)
			return calls
		}
	}
	return 0
}

// Leases and sweeps begin with a ZRANGEBYSCORE: at rest there are none, however often a dispatcher polls.
func TestADispatcherAtRestOnlyPolls(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("http://127.0.0.1:1", 7)
	f.Create(t, acme.MerchantID, nil)
	start(t, f.dispatcher(t))
	const polls, zsets = 5, 2 * session.Buckets
	dispatchertest.Eventually(t, "it has polled some times", func() bool { return f.calls(t, "zrange") >= polls*zsets })
	if n := f.calls(t, "zrangebyscore"); n != 0 {
		t.Errorf("%d leases and sweeps, with nothing due", n)
	}
}

// A merchant whose breaker is open has an event due all the time. Each poll leases its bucket once, in case that others have one too.
func TestPoll_OpenBreaker(t *testing.T) {
	f := newFixture(t)
	acme := f.EndpointAt("https://shop.example", 7)
	for range breakerThreshold + 1 {
		f.Event(t, acme.MerchantID)
	}
	d := f.dispatcher(t)
	d.sender = senderFunc(func() delivery.Result {
		return delivery.Result{Outcome: delivery.Failed, Reason: delivery.ReasonConnect}
	})
	d.now = func() time.Time { return noon } // the breaker stays open
	start(t, d)
	dispatchertest.Eventually(t, "its breaker is open", func() bool {
		return testutil.ToFloat64(d.metrics.deferred.WithLabelValues(deferredBreaker)) > 0 && d.queues.attemptsInFlight() == 0
	})
	const polls, zsets = 5, 2 * session.Buckets
	leases, before := f.calls(t, "zrangebyscore"), f.calls(t, "zrange")
	dispatchertest.Eventually(t, "it has polled some times", func() bool { return f.calls(t, "zrange")-before >= polls*zsets })
	if n := f.calls(t, "zrangebyscore") - leases; n < 1 || n > polls+2 {
		t.Errorf("%d leases in %d polls, with nothing to deliver", n, polls)
	}
}

// In each bucket there is one session past its time, and nobody reads it.
func TestEveryBucketIsSwept(t *testing.T) {
	f := newFixture(t)
	start(t, f.dispatcher(t))
	for i := range session.Buckets {
		f.Create(t, dispatchertest.NewMerchantID(session.Bucket(i)), func(n *store.NewSession) { n.Lifetime = 20 * time.Millisecond })
	}
	dispatchertest.Eventually(t, "all of them are expired and nothing waits", func() bool {
		keys, err := f.Redis(t).Keys(t.Context(), "{b??}:expiry").Result()
		return err == nil && len(keys) == 0
	})
}

func TestASessionNobodyReadsExpiresAndSaysSo(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.EndpointAt(shop.URL, 7)
	d := f.dispatcher(t)
	start(t, d)
	created := f.Create(t, acme.MerchantID, func(n *store.NewSession) { n.Lifetime = 20 * time.Millisecond })
	if seen := shop.await(t, 1); seen[0].ID != dispatchertest.EndedEvent(created.ID) {
		t.Errorf("saw %+v", seen[0])
	}
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	if got := testutil.ToFloat64(d.metrics.expiredSessions); got != 1 {
		t.Errorf("counted %v expired sessions", got)
	}
}

// slowIndex blocks the leases of one merchant's bucket, as a slow server of a Redis Cluster would.
type slowIndex struct {
	index

	merchantID string
	leases     atomic.Int32
	released   chan struct{}
}

func (i *slowIndex) Endpoint(merchantID string) endpoints.Endpoint {
	if merchantID == i.merchantID {
		i.leases.Add(1)
		<-i.released
	}
	return i.index.Endpoint(merchantID)
}

func TestASlowBucketDelaysNoOther(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	slow, acme := f.EndpointAt(shop.URL, 7), f.EndpointAt(shop.URL, 8)
	d := f.dispatcher(t)
	index := &slowIndex{index: f.Index, merchantID: slow.MerchantID, released: make(chan struct{})}
	d.index = index
	f.Event(t, slow.MerchantID)
	start(t, d)
	t.Cleanup(func() { close(index.released) }) // before the dispatcher is stopped
	dispatchertest.Eventually(t, "the slow bucket is leased", func() bool { return index.leases.Load() == 1 })
	for n := range 3 {
		f.Event(t, slow.MerchantID)
		id := f.Event(t, acme.MerchantID)
		if seen := shop.await(t, n+1); seen[n].ID != id {
			t.Errorf("saw %s, want %s", seen[n].ID, id)
		}
	}
	if n := index.leases.Load(); n != 1 {
		t.Errorf("%d leases of the slow bucket in progress, want 1", n)
	}
}
