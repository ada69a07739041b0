package dispatcher

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// kill leaves what a dispatcher leaves that was killed: a holder that makes no further heartbeat, with leases that last for an hour.
func (f testFixture) kill(t *testing.T, name string, bucket session.Bucket, events int) {
	t.Helper()
	_, err := f.Outbox.Heartbeat(t.Context(), f.Outbox.HolderBuckets()[0], name, true)
	dispatchertest.Must(t, err)
	leased, err := f.Outbox.Lease(t.Context(), bucket, outbox.LeaseRequest{HolderIdentity: name, For: time.Hour, Limit: 10})
	if err != nil || len(leased.Leases) != events {
		t.Fatalf("leased %d events: %v", len(leased.Leases), err)
	}
}

// heartbeats returns how many each holder has made.
func (f testFixture) heartbeats(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for name, count := range f.Redis(t).HGetAll(t.Context(), redis.BucketKeyspace(0).Key("holders")).Val() {
		counts[name], _ = strconv.Atoi(count)
	}
	return counts
}

// awaitHeartbeats waits until each holder has made so many more.
func (f testFixture) awaitHeartbeats(t *testing.T, more int) {
	t.Helper()
	before := f.heartbeats(t)
	dispatchertest.Eventually(t, "all dispatchers make heartbeats", func() bool {
		after := f.heartbeats(t)
		for name, count := range before {
			if after[name] < count+more {
				return false
			}
		}
		return true
	})
}

// The events of a killed dispatcher are free long before their leases end.
func TestFreeLeases_KilledDispatcher(t *testing.T) {
	f := newFixture(t)
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	acme, globex := f.EndpointAt(shop.URL, 7), f.EndpointAt(shop.URL, 8)
	want := []string{f.Event(t, acme.MerchantID), f.Event(t, acme.MerchantID), f.Event(t, globex.MerchantID)}
	f.kill(t, "killed", 7, 2)
	f.kill(t, "killed too", 8, 1)
	start(t, f.dispatcher(t))
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	f.AwaitBacklog(t, 8, outbox.Backlog{})
	got := shop.IDs()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	if text := f.Log.String(); !strings.Contains(text, "took over the events of a dispatcher") {
		t.Errorf("the log is %s", text)
	}
	dispatchertest.Eventually(t, "the killed ones are forgotten", func() bool { return len(f.heartbeats(t)) == 1 })
}

// A dispatcher that was killed after it had removed another one leaves the leases to a third.
func TestFreeLeases_RemoverKilled(t *testing.T) {
	f := newFixture(t)
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	id := f.Event(t, f.EndpointAt(shop.URL, 7).MerchantID)
	f.kill(t, "killed", 7, 1)
	removed, err := f.Outbox.RemoveHolder(t.Context(), f.Outbox.HolderBuckets()[0], "killed", "1")
	if err != nil || !removed {
		t.Fatalf("removed: %t, %v", removed, err)
	}
	start(t, f.dispatcher(t))
	shop.AwaitEvent(t, 0, id)
	dispatchertest.Eventually(t, "the removed one is forgotten", func() bool { return len(f.heartbeats(t)) == 1 })
}

// A Redis that loses everything has lost the holders as well: a dispatcher goes on under another name.
func TestHeartbeat_RedisLosesHolders(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	start(t, f.dispatcher(t))
	dispatchertest.Eventually(t, "it makes heartbeats", func() bool { return len(f.heartbeats(t)) == 1 })
	before := slices.Collect(maps.Keys(f.heartbeats(t)))[0]
	dispatchertest.Must(t, f.Redis(t).FlushAll(t.Context()).Err())
	id := f.Event(t, acme.MerchantID)
	shop.AwaitEvent(t, 0, id)
	dispatchertest.Eventually(t, "it has another name", func() bool {
		after := f.heartbeats(t)
		return len(after) == 1 && after[before] == 0
	})
}

// Longer than a removal takes, a dispatcher has an attempt in progress, and then drains with it. The other one leaves it its event.
func TestHeartbeat_SlowAttemptAndDrain(t *testing.T) {
	f := newFixture(t)
	answer := make(chan struct{})
	shop, acme := f.Shop(t, dispatchertest.After(answer, http.StatusOK))
	f.Event(t, acme.MerchantID)
	first := start(t, f.dispatcher(t))
	shop.Await(t, 1)
	start(t, f.dispatcher(t))
	dispatchertest.Eventually(t, "both make heartbeats", func() bool { return len(f.heartbeats(t)) == 2 })
	const removal = 8 // heartbeats in twice the time after which others remove a holder
	f.awaitHeartbeats(t, removal)
	stopped := make(chan error, 1)
	go func() { stopped <- first() }()
	f.awaitHeartbeats(t, removal)
	shop.WantAttempts(t, 1)
	close(answer)
	dispatchertest.Must(t, <-stopped)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	shop.WantAttempts(t, 1)
}
