package holder

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestMain(m *testing.M) { dispatchertest.Main(m) }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newSet(events *outbox.Outbox) Set {
	return New(events, "merchant-operator-dispatcher-6f7b9d8c5d-x2vlq-1", loop.NewLog(slog.New(slog.DiscardHandler)), time.Now)
}

// A dispatcher that drains frees no leases, so it leaves others alone.
func TestHeartbeat_DrainRemovesNobody(t *testing.T) {
	f := dispatchertest.New(t)
	all := newSet(f.Outbox)
	h := all.In(7)
	_, err := f.Outbox.Heartbeat(t.Context(), h.bucket, "killed", true)
	dispatchertest.Must(t, err)
	_, err = h.heartbeat(t.Context())
	dispatchertest.Must(t, err)
	all.Drain()
	h.others["killed"] = sighting{"1", time.Now().Add(-time.Hour)}
	_, err = h.heartbeat(t.Context())
	dispatchertest.Must(t, err)
	left, err := f.Outbox.Heartbeat(t.Context(), h.bucket, "another", true)
	dispatchertest.Must(t, err)
	if left["killed"] != "1" {
		t.Errorf("the holders are %v", left)
	}
}

// A process that was frozen while it waited must not begin when its lease may have ended.
func TestAwait_TooLate(t *testing.T) {
	now := noon
	h := &Holder{name: "here", at: now, now: func() time.Time { return now }}
	if h.Await(t.Context(), "here", noon.Add(-1)) {
		t.Error("an attempt may begin after its time")
	}
	if !h.Await(t.Context(), "here", noon) {
		t.Error("an attempt may not begin in time")
	}
}

// Nothing is leased without a heartbeat, and a silent Redis is asked for one at most once in an interval.
func TestConfirm_RedisAway(t *testing.T) {
	f := dispatchertest.New(t)
	h := newSet(f.Outbox).In(7)
	f.Server.Stop()
	if _, err := h.Confirm(t.Context()); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	h.failedAt = time.Now()
	if _, err := h.Confirm(t.Context()); !errors.Is(err, errNoHeartbeat) && time.Since(h.failedAt) < heartbeatInterval {
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
		h, now := &Holder{}, noon
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
	f := dispatchertest.New(t)
	names := map[string]bool{}
	for range 2 {
		name, err := newSet(f.Outbox).In(7).Confirm(t.Context())
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
	all := newSet(outbox.New(client))
	names := map[string]bool{}
	for bucket := range session.Bucket(session.Buckets) {
		one := all.In(bucket)
		if buckets := all.Buckets(one); len(buckets) != 1 || buckets[0] != bucket {
			t.Errorf("the holder of bucket %d has %v", bucket, buckets)
		}
		name, err := one.Confirm(t.Context())
		dispatchertest.Must(t, err)
		names[name] = true
	}
	if len(names) != session.Buckets {
		t.Errorf("%d names for %d buckets", len(names), session.Buckets)
	}
	single := newSet(dispatchertest.New(t).Outbox)
	if buckets := single.Buckets(single.In(9)); len(single) != 1 || len(buckets) != session.Buckets {
		t.Errorf("%d holders, the first of %d buckets", len(single), len(buckets))
	}
}
