package outbox_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// inTestMode is the same merchant with a test key.
func (s fixture) inTestMode() fixture {
	s.asks.TestMode = true
	return s
}

// Whatever the endpoint answers to events of test mode leaves no trace but in the event.
func TestEventsOfTestModeSayNothingOfTheEndpoint(t *testing.T) {
	s := newFixture(t).inTestMode()
	failure := outbox.Failure{
		Details: outbox.Details{Reason: "status_5xx"}, Retry: time.Minute, Target: "here", FailingLimit: time.Nanosecond, Permanent: true,
	}
	id := s.event(t)
	if failed, err := s.Failed(t.Context(), s.one(t), failure); err != nil || failed != (outbox.Failed{}) {
		t.Fatalf("%+v, %v", failed, err)
	}
	if in, there := s.dueIn(t, id); !there || in > time.Minute || in < time.Minute-storetest.Timeout {
		t.Errorf("due in %s, want a minute", in)
	}
	s.hasten(t, id)
	if lease := s.one(t); !lease.Event.TestMode || lease.Attempts != 1 || lease.Event.MerchantID != s.asks.MerchantID {
		t.Errorf("leased %+v", lease)
	} else {
		must(t, s.Delivered(t.Context(), lease, "here"))
	}
	for name, last := range map[string]outbox.Failure{
		"given up": with(failure, func(f *outbox.Failure) { f.Retry = -1 }),
		"gone":     with(failure, func(f *outbox.Failure) { f.Gone = true }),
	} {
		id := s.event(t)
		if failed, err := s.Failed(t.Context(), s.one(t), last); err != nil || failed != (outbox.Failed{Dropped: true}) {
			t.Errorf("%s: %+v, %v", name, failed, err)
		}
		if hash, due, dead := s.leftOf(t, id); hash || due || dead {
			t.Errorf("%s: left are the event %t, its due time %t, a dead letter %t", name, hash, due, dead)
		}
	}
	for _, key := range s.redis.Keys(t.Context(), "*").Val() {
		if strings.Contains(key, "endpoint") || strings.Contains(key, "dead") || strings.Contains(key, "watched") {
			t.Errorf("there is %s", key)
		}
	}
}

// Events of both modes have their turns like those of two merchants: a backlog of tests delays nothing live.
func TestTheModesHaveTheirOwnQueues(t *testing.T) {
	s := newFixture(t)
	test := s.inTestMode()
	for range 5 {
		test.event(t)
	}
	live := s.event(t)
	leased, err := s.Lease(t.Context(), s.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: 4})
	if err != nil || !slices.Contains(idsOf(leased.Leases), live) {
		t.Errorf("of 5 tests and then one live event, these come first: %v, %v", idsOf(leased.Leases), err)
	}
	states, err := s.Endpoints(t.Context(), s.bucket(), s.asks.MerchantID)
	if err != nil || len(states.States) != 1 || states.States[0].Pending != 1 {
		t.Errorf("of one live event are pending: %+v, %v", states, err)
	}
}

// A rotation of a test key is an event of test mode, too.
func TestARotatedTestKey(t *testing.T) {
	s := newFixture(t)
	rotation := storetest.Rotation(s.asks, 2)
	rotation.TestMode = true
	if recorded, err := s.RecordRotation(t.Context(), rotation, storetest.RotatedAt, feed.History{}); err != nil || !recorded {
		t.Fatal(recorded, err)
	}
	if lease := s.one(t); !lease.Event.TestMode || lease.Event.MerchantID != s.asks.MerchantID || lease.Event.Key.KeyID != s.asks.KeyID {
		t.Errorf("leased %+v", lease.Event)
	}
}
