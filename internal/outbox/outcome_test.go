package outbox_test

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// leftOf is what Redis holds of an event.
func (s fixture) leftOf(t *testing.T, id string) (hash, due, dead bool) {
	t.Helper()
	ctx := t.Context()
	_, due = s.dueIn(t, id)
	return s.redis.Exists(ctx, s.tag+"event:"+id).Val() == 1, due, s.redis.ZScore(ctx, s.tag+"dead", id).Err() == nil
}

func TestAnEventEndsWithItsDelivery(t *testing.T) {
	s := newFixture(t)
	for name, end := range map[string]func(outbox.Lease) error{
		"delivered": func(l outbox.Lease) error { return s.Delivered(t.Context(), l, "here") },
		"dropped":   func(l outbox.Lease) error { return s.Drop(t.Context(), l) },
	} {
		id := s.event(t)
		must(t, end(s.one(t)))
		if hash, due, dead := s.leftOf(t, id); hash || due || dead {
			t.Errorf("%s: left are the event %t, its due time %t, a dead letter %t", name, hash, due, dead)
		}
	}
}

func TestAFailedAttemptIsTriedAgainLater(t *testing.T) {
	s := newFixture(t)
	id := s.event(t)
	for attempt := range 3 {
		lease := s.one(t)
		if lease.Event.ID != id || lease.Attempts != attempt {
			t.Fatalf("leased %s after %d attempts, want %s after %d", lease.Event.ID, lease.Attempts, id, attempt)
		}
		failed, err := s.Failed(t.Context(), lease, outbox.Failure{
			Details: outbox.Details{Reason: "status_5xx"}, Retry: time.Minute, Target: "here", FailingLimit: time.Hour,
		})
		if err != nil || failed != (outbox.Failed{}) {
			t.Fatalf("%+v, %v", failed, err)
		}
		if in, there := s.dueIn(t, id); !there || in > time.Minute || in < time.Minute-storetest.Timeout {
			t.Errorf("due in %s, want a minute", in)
		}
		if due := s.leaseFor(t, time.Hour, 10); len(due) != 0 {
			t.Errorf("due already: %v", idsOf(due))
		}
		s.hasten(t, id)
	}
}

// hasten makes an event due now.
func (s fixture) hasten(t *testing.T, id string) {
	t.Helper()
	dueAt(t, s.redis, s.tag, id, time.UnixMilli(1))
}

func TestAfterTheLastAttemptAnEventIsADeadLetter(t *testing.T) {
	s := newFixture(t)
	id := s.event(t)
	failed, err := s.Failed(t.Context(), s.one(t), outbox.Failure{
		Details: outbox.Details{Reason: "timeout"}, Retry: -1, Target: "here", FailingLimit: time.Hour,
	})
	if err != nil || failed != (outbox.Failed{DeadLettered: true}) {
		t.Fatalf("%+v, %v", failed, err)
	}
	if hash, due, dead := s.leftOf(t, id); !hash || due || !dead {
		t.Errorf("left are the event %t, its due time %t, a dead letter %t", hash, due, dead)
	}
	// It is kept for 30 days from now on, not from when it was recorded.
	if left := s.redis.PTTL(t.Context(), s.tag+"event:"+id).Val(); left < 30*24*time.Hour-storetest.Timeout {
		t.Errorf("the dead letter is kept for %s", left)
	}
}

func TestAnAttemptThatIsTriedAgainAtOnce(t *testing.T) {
	s := newFixture(t)
	id := s.event(t)
	failed, err := s.Failed(t.Context(), s.one(t), outbox.Failure{Details: outbox.Details{Reason: "dns"}, Target: "here", FailingLimit: time.Hour})
	if err != nil || failed.DeadLettered {
		t.Fatalf("%+v, %v", failed, err)
	}
	if lease := s.one(t); lease.Event.ID != id || lease.Attempts != 1 {
		t.Errorf("leased %s after %d attempts", lease.Event.ID, lease.Attempts)
	}
}
