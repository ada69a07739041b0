package outbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// beat makes a heartbeat, and returns those of all holders.
func (s fixture) beat(t *testing.T, holder string, isNew bool) map[string]string {
	t.Helper()
	heartbeats, err := s.Heartbeat(t.Context(), s.bucket(), holder, isNew)
	must(t, err)
	return heartbeats
}

func TestHeartbeat_CountsEachHolder(t *testing.T) {
	s := newFixture(t)
	s.beat(t, "a", true)
	s.beat(t, "b", true)
	if diff := cmp.Diff(map[string]string{"a": "2", "b": "1"}, s.beat(t, "a", false)); diff != "" {
		t.Error(diff)
	}
	if left := s.redis.PTTL(t.Context(), s.tag+"holders").Val(); left <= 0 || left > outbox.HoldersKept {
		t.Errorf("the holders are kept for %s", left)
	}
}

// A holder is removed once, and not after another heartbeat, and again until it is forgotten. It learns of it, also when Redis has lost all holders.
func TestRemoveHolder(t *testing.T) {
	s := newFixture(t)
	s.beat(t, "frozen", true)
	s.beat(t, "frozen", false)
	for _, row := range []struct {
		heartbeats string
		want       bool
	}{{"1", false}, {"2", true}, {"2", false}, {"removed", true}} {
		removed, err := s.RemoveHolder(t.Context(), s.bucket(), "frozen", row.heartbeats)
		must(t, err)
		if removed != row.want {
			t.Errorf("after heartbeat %s: removed %t, want %t", row.heartbeats, removed, row.want)
		}
	}
	if _, err := s.Heartbeat(t.Context(), s.bucket(), "frozen", false); !errors.Is(err, outbox.ErrHolderRemoved) {
		t.Errorf("got %v, want ErrHolderRemoved", err)
	}
	if heartbeats := s.beat(t, "another", true); len(heartbeats) != 2 {
		t.Errorf("before it is forgotten the holders are %v", heartbeats)
	}
	for _, holder := range []string{"frozen", "another"} { // only a removed one is forgotten
		must(t, s.ForgetHolder(t.Context(), s.bucket(), holder))
	}
	if heartbeats := s.beat(t, "another", false); len(heartbeats) != 1 {
		t.Errorf("after it was forgotten the holders are %v", heartbeats)
	}
	if _, err := s.Heartbeat(t.Context(), s.bucket(), "frozen", false); !errors.Is(err, outbox.ErrHolderRemoved) {
		t.Errorf("got %v, want ErrHolderRemoved", err)
	}
}

// All leases of one holder end, also in a queue with more entries than one script looks at. Those of another holder, and retries, stay.
func TestFreeLeases(t *testing.T) {
	s := newFixture(t)
	const events = 300
	leased := map[string]outbox.Lease{}
	for range events {
		s.event(t)
	}
	for _, lease := range s.leaseFor(t, time.Hour, events+1) {
		leased[lease.Event.ID] = lease
	}
	s.fail(t, "here", nil) // due again in an hour
	kept := s.event(t)
	other, err := s.Lease(t.Context(), s.bucket(), outbox.LeaseRequest{HolderIdentity: "a test 2", For: time.Hour, Limit: 1})
	must(t, err)
	freed, err := s.FreeLeases(t.Context(), s.bucket(), "a test")
	must(t, err)
	if freed != events || len(other.Leases) != 1 || other.Leases[0].Event.ID != kept {
		t.Errorf("freed %d leases, want %d; another holder has %+v", freed, events, other.Leases)
	}
	for _, lease := range leased {
		if err := s.RecordDelivery(t.Context(), lease, outbox.Target{ID: "here"}); !errors.Is(err, outbox.ErrLeaseLost) {
			t.Fatalf("the former holder gets %v, want ErrLeaseLost", err)
		}
	}
	again := s.leaseFor(t, time.Hour, events+1)
	for _, lease := range again {
		delete(leased, lease.Event.ID)
	}
	if len(again) != events || len(leased) != 0 {
		t.Errorf("%d events are due, without %d of those that were freed", len(again), len(leased))
	}
	must(t, s.RecordDelivery(t.Context(), other.Leases[0], outbox.Target{ID: "here"}))
}
