package dispatcher

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/dispatcher/queue"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
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
	shop := newReceiver(t, always(http.StatusOK))
	acme, globex := f.EndpointAt(shop.URL, 7), f.EndpointAt(shop.URL, 8)
	want := []string{f.Event(t, acme.MerchantID), f.Event(t, acme.MerchantID), f.Event(t, globex.MerchantID)}
	f.kill(t, "killed", 7, 2)
	f.kill(t, "killed too", 8, 1)
	start(t, f.dispatcher(t))
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	f.AwaitBacklog(t, 8, outbox.Backlog{})
	got := shop.ids()
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
	shop := newReceiver(t, always(http.StatusOK))
	id := f.Event(t, f.EndpointAt(shop.URL, 7).MerchantID)
	f.kill(t, "killed", 7, 1)
	removed, err := f.Outbox.RemoveHolder(t.Context(), f.Outbox.HolderBuckets()[0], "killed", "1")
	if err != nil || !removed {
		t.Fatalf("removed: %t, %v", removed, err)
	}
	start(t, f.dispatcher(t))
	if seen := shop.await(t, 1); seen[0].ID != id {
		t.Errorf("saw %s, want %s", seen[0].ID, id)
	}
	dispatchertest.Eventually(t, "the removed one is forgotten", func() bool { return len(f.heartbeats(t)) == 1 })
}

// A dispatcher that drains frees no leases, so it leaves others alone.
func TestHeartbeat_DrainRemovesNobody(t *testing.T) {
	f := newFixture(t)
	d := f.dispatcher(t)
	f.kill(t, "killed", 7, 0)
	h := d.holders.in(7)
	_, err := h.heartbeat(t.Context())
	dispatchertest.Must(t, err)
	d.holders.drain()
	h.others["killed"] = sighting{"1", time.Now().Add(-time.Hour)}
	_, err = h.heartbeat(t.Context())
	dispatchertest.Must(t, err)
	if left := f.heartbeats(t); left["killed"] != 1 {
		t.Errorf("the holders are %v", left)
	}
}

// A Redis that loses everything has lost the holders as well: a dispatcher goes on under another name.
func TestHeartbeat_RedisLosesHolders(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.EndpointAt(shop.URL, 7)
	start(t, f.dispatcher(t))
	dispatchertest.Eventually(t, "it makes heartbeats", func() bool { return len(f.heartbeats(t)) == 1 })
	before := slices.Collect(maps.Keys(f.heartbeats(t)))[0]
	dispatchertest.Must(t, f.Redis(t).FlushAll(t.Context()).Err())
	id := f.Event(t, acme.MerchantID)
	if seen := shop.await(t, 1); seen[0].ID != id {
		t.Errorf("saw %s, want %s", seen[0].ID, id)
	}
	dispatchertest.Eventually(t, "it has another name", func() bool {
		after := f.heartbeats(t)
		return len(after) == 1 && after[before] == 0
	})
}

// Longer than a removal takes, a dispatcher has an attempt in progress, and then drains with it. The other one leaves it its event.
func TestHeartbeat_SlowAttemptAndDrain(t *testing.T) {
	f := newFixture(t)
	answer := make(chan struct{})
	shop := newReceiver(t, after(answer, http.StatusOK))
	acme := f.EndpointAt(shop.URL, 7)
	f.Event(t, acme.MerchantID)
	first := start(t, f.dispatcher(t))
	shop.await(t, 1)
	start(t, f.dispatcher(t))
	dispatchertest.Eventually(t, "both make heartbeats", func() bool { return len(f.heartbeats(t)) == 2 })
	const removal = int(2 * removalTime / heartbeatInterval)
	f.awaitHeartbeats(t, removal)
	stopped := make(chan error, 1)
	go func() { stopped <- first() }()
	f.awaitHeartbeats(t, removal)
	if n := len(shop.ids()); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
	close(answer)
	dispatchertest.Must(t, <-stopped)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	if n := len(shop.ids()); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
}

// A dispatcher that was frozen sends nothing of what it had leased before it has made a heartbeat. If others have removed it in the meantime, it
// sends nothing of that at all.
func TestAttempt_AfterFreeze(t *testing.T) {
	for name, removed := range map[string]bool{"still there": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			shop := newReceiver(t, always(http.StatusOK))
			acme := f.EndpointAt(shop.URL, 7)
			f.Event(t, acme.MerchantID)
			f.Event(t, acme.MerchantID)
			d := f.dispatcher(t)
			h := d.holders.in(7)
			holder, err := h.confirm(t.Context())
			dispatchertest.Must(t, err)
			leased, err := f.Outbox.Lease(t.Context(), 7, outbox.LeaseRequest{HolderIdentity: holder, For: time.Hour, Limit: 2})
			dispatchertest.Must(t, err)
			attempt := func(lease outbox.Lease, startBy time.Duration) queue.Result {
				now := time.Now()
				return d.Attempt(t.Context(), queue.Job{Lease: lease, Holder: holder, Endpoint: acme, Asked: now, RedisNow: now, StartBy: now.Add(startBy), LeaseEnd: now.Add(time.Hour)})
			}
			h.at = h.at.Add(-time.Hour)
			if removed {
				gone, err := f.Outbox.RemoveHolder(t.Context(), h.bucket, holder, "1")
				if err != nil || !gone {
					t.Fatalf("removed: %t, %v", gone, err)
				}
			}
			if result := attempt(leased.Leases[0], 0); result != queue.Inconclusive || len(shop.ids()) != 0 {
				t.Errorf("without a heartbeat: result %v, %d attempts", result, len(shop.ids()))
			}
			_, err = h.heartbeat(t.Context())
			dispatchertest.Must(t, err)
			want, attempts := queue.Succeeded, 1
			if removed {
				want, attempts = queue.Inconclusive, 0
			}
			if result := attempt(leased.Leases[1], dispatchertest.Patience); result != want || len(shop.ids()) != attempts {
				t.Errorf("after a heartbeat: result %v, %d attempts, want %v, %d", result, len(shop.ids()), want, attempts)
			}
		})
	}
}

// A process that was frozen while it waited must not begin when its lease may have ended.
func TestAwait_TooLate(t *testing.T) {
	h := &holder{name: "here", at: time.Now()}
	if h.await(t.Context(), "here", func() time.Time { return noon.Add(1) }, noon) {
		t.Error("an attempt may begin after its time")
	}
	if !h.await(t.Context(), "here", func() time.Time { return noon }, noon) {
		t.Error("an attempt may not begin in time")
	}
}

// Nothing is leased without a heartbeat, and a silent Redis is asked for one at most once in an interval.
func TestConfirm_RedisAway(t *testing.T) {
	f := newFixture(t)
	d := f.dispatcher(t)
	f.Server.Stop()
	if _, err := d.lease(t.Context(), 7); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	h := d.holders.in(8)
	h.failedAt = time.Now()
	if _, err := d.lease(t.Context(), 8); !errors.Is(err, errNoHeartbeat) && time.Since(h.failedAt) < heartbeatInterval {
		t.Errorf("got %v, want errNoHeartbeat", err)
	}
}

// Only a holder whose last heartbeat was seen for long enough, without a gap, is silent. No clock of Redis or of another dispatcher counts.
func TestObserve(t *testing.T) {
	type look struct {
		after      time.Duration
		continuous bool
		heartbeats string
		silent     bool
	}
	for name, looks := range map[string][]look{
		"alive":                    {{0, true, "1", false}, {removalTime, true, "2", false}, {removalTime, true, "3", false}},
		"silent":                   {{0, true, "1", false}, {removalTime - 1, true, "1", false}, {1, true, "1", true}},
		"silent until it was gone": {{0, true, "1", false}, {removalTime, true, "1", true}, {time.Second, true, "", false}},
		"back in time":             {{0, true, "1", false}, {removalTime - 1, true, "1", false}, {1, true, "2", false}},
		"a smaller number":         {{0, true, "9", false}, {removalTime, true, "1", false}},
		"Redis was silent":         {{0, true, "1", false}, {time.Minute, false, "1", false}, {time.Second, true, "1", false}, {removalTime, true, "1", true}},
	} {
		h, now := &holder{}, noon
		for i, look := range looks {
			now = now.Add(look.after)
			heartbeats := map[string]string{}
			if look.heartbeats != "" {
				heartbeats["other"] = look.heartbeats
			}
			if _, silent := h.observe(heartbeats, look.continuous, now)["other"]; silent != look.silent {
				t.Errorf("%s: look %d: silent %t, want %t", name, i, silent, look.silent)
			}
		}
	}
}

// Each lease writes the name twice, so it has only the end of a pod's name. The random part tells holders apart.
func TestHolders_ShortName(t *testing.T) {
	f := newFixture(t)
	names := map[string]bool{}
	for range 2 {
		all := newHolders(f.Outbox, "merchant-operator-dispatcher-6f7b9d8c5d-x2vlq-1", loop.NewLog(f.dispatcher(t).options.Log))
		name, err := all.in(7).confirm(t.Context())
		dispatchertest.Must(t, err)
		if len(name) != 16 || !strings.HasPrefix(name, "x2vlq-1-") {
			t.Errorf("the holder is %q, want x2vlq-1- and 8 characters", name)
		}
		names[name] = true
	}
	if len(names) != 2 {
		t.Errorf("two holders have the names %v", names)
	}
}

// In a Redis Cluster each bucket has holders of its own.
func TestHolders_RedisCluster(t *testing.T) {
	servers := storetest.StartCluster(t)
	client := storetest.Client(t, "redis+cluster://"+servers[0].Addr()+"?addr="+servers[1].Addr())
	f := newFixture(t)
	all := newHolders(outbox.New(client), "test", loop.NewLog(f.dispatcher(t).options.Log))
	names := map[string]bool{}
	for bucket := range session.Bucket(session.Buckets) {
		one := all.in(bucket)
		if buckets := all.buckets(one); len(buckets) != 1 || buckets[0] != bucket {
			t.Errorf("the holder of bucket %d has %v", bucket, buckets)
		}
		name, err := one.confirm(t.Context())
		dispatchertest.Must(t, err)
		names[name] = true
	}
	if len(names) != session.Buckets {
		t.Errorf("%d names for %d buckets", len(names), session.Buckets)
	}
	d := f.dispatcher(t)
	if buckets := d.holders.buckets(d.holders.in(9)); len(d.holders) != 1 || len(buckets) != session.Buckets {
		t.Errorf("%d holders, the first of %d buckets", len(d.holders), len(buckets))
	}
}
