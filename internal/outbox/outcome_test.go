package outbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestDelivered_LeavesNothing(t *testing.T) {
	s := newFixture(t)
	for name, end := range map[string]func(outbox.Lease) error{
		"delivered": func(l outbox.Lease) error { return s.RecordDelivery(t.Context(), l, outbox.Target{ID: "here"}) },
		"dropped":   func(l outbox.Lease) error { return s.Drop(t.Context(), l) },
	} {
		id := s.event(t)
		must(t, end(s.one(t)))
		if hash, due, dead := s.remains(t, id); hash || due || dead {
			t.Errorf("%s: left are the event %t, its due time %t, a dead letter %t", name, hash, due, dead)
		}
	}
}

// People see the time of the last delivery in seconds, so further deliveries of one second write nothing to a healthy endpoint. A clock that was
// set back counts.
func TestDelivered_WritesTimeOncePerSecond(t *testing.T) {
	s := newFixture(t)
	endpoint := s.tag + "endpoint:" + s.asks.MerchantID
	s.deliver(t, "here")
	for name, row := range map[string]struct {
		ago  time.Duration
		kept bool
	}{"same second": {0, true}, "second before": {time.Second, false}, "clock set back": {-time.Hour, false}} {
		for attempt := true; attempt; { // again, if the delivery comes in another second than the fixture
			s.event(t)
			lease, now := s.one(t), s.redis.Time(t.Context()).Val()
			last := now.Add(-row.ago).Truncate(time.Second)
			must(t, s.redis.HSet(t.Context(), endpoint, "delivered", last.UnixMilli()).Err())
			must(t, s.RecordDelivery(t.Context(), lease, outbox.Target{ID: "here"}))
			after := s.redis.Time(t.Context()).Val()
			if attempt = row.kept && after.Unix() != now.Unix(); attempt {
				continue
			}
			found := s.state(t).LastDelivery
			if found.Equal(last) != row.kept || found.Before(now.Truncate(time.Second)) || found.After(after) {
				t.Errorf("%s: the last delivery was at %s and is at %s, between %s and %s", name, last, found, now, after)
			}
		}
	}
}

func TestFailed_RetriesLater(t *testing.T) {
	s := newFixture(t)
	id := s.event(t)
	for attempt := range 3 {
		lease := s.one(t)
		if lease.Event.ID != id || lease.Attempts != attempt {
			t.Fatalf("leased %s after %d attempts, want %s after %d", lease.Event.ID, lease.Attempts, id, attempt)
		}
		failed, err := s.RecordFailure(t.Context(), lease, outbox.Failure{
			Details: outbox.Details{Reason: "status_5xx"}, Retry: time.Minute, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour,
		})
		if err != nil || failed != (outbox.Failed{}) {
			t.Fatalf("%+v, %v", failed, err)
		}
		if in, there := s.dueIn(t, id); !there || in > time.Minute || in < time.Minute-storetest.Timeout {
			t.Errorf("due in %s, want a minute", in)
		}
		if due := s.leaseFor(t, time.Hour, 10); len(due) != 0 {
			t.Errorf("due already: %v", leaseIDs(due))
		}
		s.hasten(t, id)
	}
}

func TestFailed_LastAttempt(t *testing.T) {
	s := newFixture(t)
	id := s.event(t)
	failed, err := s.RecordFailure(t.Context(), s.one(t), outbox.Failure{
		Details: outbox.Details{Reason: "timeout"}, Retry: -1, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour,
	})
	if err != nil || failed != (outbox.Failed{DeadLettered: true}) {
		t.Fatalf("%+v, %v", failed, err)
	}
	if hash, due, dead := s.remains(t, id); !hash || due || !dead {
		t.Errorf("left are the event %t, its due time %t, a dead letter %t", hash, due, dead)
	}
	// It is kept for 30 days from now on, not from when it was recorded.
	if left := s.redis.PTTL(t.Context(), s.tag+"event:"+id).Val(); left < 30*24*time.Hour-storetest.Timeout {
		t.Errorf("the dead letter is kept for %s", left)
	}
}

func TestFailed_RetriesAtOnce(t *testing.T) {
	s := newFixture(t)
	id := s.event(t)
	failed, err := s.RecordFailure(t.Context(), s.one(t), outbox.Failure{Details: outbox.Details{Reason: "dns"}, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour})
	if err != nil || failed.DeadLettered {
		t.Fatalf("%+v, %v", failed, err)
	}
	if lease := s.one(t); lease.Event.ID != id || lease.Attempts != 1 {
		t.Errorf("leased %s after %d attempts", lease.Event.ID, lease.Attempts)
	}
}

// An answer to an event of test mode changes the event only, never the health of the endpoint.
func TestFailed_TestMode(t *testing.T) {
	s := newFixture(t).inTestMode()
	failure := outbox.Failure{
		Details: outbox.Details{Reason: "status_5xx"}, Retry: time.Minute, Target: outbox.Target{ID: "here"}, FailingLimit: time.Nanosecond, Permanent: true,
	}
	id := s.event(t)
	if failed, err := s.RecordFailure(t.Context(), s.one(t), failure); err != nil || failed != (outbox.Failed{}) {
		t.Fatalf("%+v, %v", failed, err)
	}
	if in, there := s.dueIn(t, id); !there || in > time.Minute || in < time.Minute-storetest.Timeout {
		t.Errorf("due in %s, want a minute", in)
	}
	s.hasten(t, id)
	if lease := s.one(t); !lease.Event.TestMode || lease.Attempts != 1 || lease.Event.MerchantID != s.asks.MerchantID {
		t.Errorf("leased %+v", lease)
	} else {
		must(t, s.RecordDelivery(t.Context(), lease, outbox.Target{ID: "here"}))
	}
	for name, last := range map[string]outbox.Failure{
		"given up": with(failure, func(f *outbox.Failure) { f.Retry = -1 }),
		"gone":     with(failure, func(f *outbox.Failure) { f.Gone = true }),
	} {
		id := s.event(t)
		if failed, err := s.RecordFailure(t.Context(), s.one(t), last); err != nil || failed != (outbox.Failed{Dropped: true}) {
			t.Errorf("%s: %+v, %v", name, failed, err)
		}
		if hash, due, dead := s.remains(t, id); hash || due || dead {
			t.Errorf("%s: left are the event %t, its due time %t, a dead letter %t", name, hash, due, dead)
		}
	}
	for _, key := range s.redis.Keys(t.Context(), "*").Val() {
		if strings.Contains(key, "endpoint") || strings.Contains(key, "dead") || strings.Contains(key, "watched") {
			t.Errorf("there is %s", key)
		}
	}
}
