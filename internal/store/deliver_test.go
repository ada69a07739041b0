package store_test

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/store"
)

// leftOf is what Redis holds of an event.
func (s outboxScene) leftOf(t *testing.T, id string) (hash, due, dead bool) {
	t.Helper()
	ctx := t.Context()
	_, due = s.dueIn(t, id)
	return s.redis.Exists(ctx, s.tag+"event:"+id).Val() == 1, due, s.redis.ZScore(ctx, s.tag+"dead", id).Err() == nil
}

func TestAnEventEndsWithItsDelivery(t *testing.T) {
	s := newOutboxScene(t)
	for name, end := range map[string]func(store.Lease) error{
		"delivered": func(l store.Lease) error { return s.EventDelivered(t.Context(), l) },
		"dropped":   func(l store.Lease) error { return s.DropEvent(t.Context(), l) },
	} {
		id := s.event(t)
		must(t, end(s.one(t)))
		if hash, due, dead := s.leftOf(t, id); hash || due || dead {
			t.Errorf("%s: left are the event %t, its due time %t, a dead letter %t", name, hash, due, dead)
		}
	}
}

func TestAFailedAttemptIsTriedAgainLater(t *testing.T) {
	s := newOutboxScene(t)
	id := s.event(t)
	for attempt := range 3 {
		lease := s.one(t)
		if lease.Event.ID != id || lease.Attempts != attempt {
			t.Fatalf("leased %s after %d attempts, want %s after %d", lease.Event.ID, lease.Attempts, id, attempt)
		}
		failed, err := s.EventFailed(t.Context(), lease, store.Failure{
			Reason: "status_5xx", Retry: time.Minute, Target: "here", FailingLimit: time.Hour,
		})
		if err != nil || failed != (store.Failed{}) {
			t.Fatalf("%+v, %v", failed, err)
		}
		if in, there := s.dueIn(t, id); !there || in > time.Minute || in < time.Minute-patience {
			t.Errorf("due in %s, want a minute", in)
		}
		if due := s.leaseFor(t, time.Hour, 10); len(due) != 0 {
			t.Errorf("due already: %v", idsOf(due))
		}
		s.hasten(t, id)
	}
}

// hasten makes an event due now.
func (s outboxScene) hasten(t *testing.T, id string) {
	t.Helper()
	dueAt(t, s.redis, s.tag, id, time.UnixMilli(1))
}

func TestAfterTheLastAttemptAnEventIsADeadLetter(t *testing.T) {
	s := newOutboxScene(t)
	id := s.event(t)
	failed, err := s.EventFailed(t.Context(), s.one(t), store.Failure{
		Reason: "timeout", Retry: -1, Target: "here", FailingLimit: time.Hour,
	})
	if err != nil || failed != (store.Failed{Buried: true}) {
		t.Fatalf("%+v, %v", failed, err)
	}
	if hash, due, dead := s.leftOf(t, id); !hash || due || !dead {
		t.Errorf("left are the event %t, its due time %t, a dead letter %t", hash, due, dead)
	}
	// It is kept for 30 days from now on, not from when it was recorded.
	if left := s.redis.PTTL(t.Context(), s.tag+"event:"+id).Val(); left < 30*24*time.Hour-patience {
		t.Errorf("the dead letter is kept for %s", left)
	}
}

func TestAnAttemptThatIsTriedAgainAtOnce(t *testing.T) {
	s := newOutboxScene(t)
	id := s.event(t)
	failed, err := s.EventFailed(t.Context(), s.one(t), store.Failure{Reason: "dns", Target: "here", FailingLimit: time.Hour})
	if err != nil || failed.Buried {
		t.Fatalf("%+v, %v", failed, err)
	}
	if lease := s.one(t); lease.Event.ID != id || lease.Attempts != 1 {
		t.Errorf("leased %s after %d attempts", lease.Event.ID, lease.Attempts)
	}
}
