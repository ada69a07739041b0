package outbox_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// recordedEvents returns a merchant's events whose ids begin with prefix. Each must be in the queue.
func recordedEvents(t *testing.T, merchantID, prefix string) map[string]feed.Event {
	t.Helper()
	c := storetest.Inspect(t, shared)
	tag := storetest.Tag(merchantID)
	events := map[string]feed.Event{}
	for _, key := range c.Keys(t.Context(), tag+"event:"+prefix+"*").Val() {
		id := strings.TrimPrefix(key, tag+"event:")
		event, err := outbox.ParseEvent(id, c.HGetAll(t.Context(), key).Val())
		must(t, err)
		if _, _, there := storetest.Queued(t, c, tag, id); !there {
			t.Errorf("%s is not in the queue", id)
		}
		events[id] = event
	}
	return events
}

func TestRecordRotation(t *testing.T) {
	s := storetest.New(t, shared.URL())
	asks := storetest.Merchant()
	now := storetest.RotatedAt.Add(time.Minute)
	want := map[string]feed.Event{}
	for i, step := range []struct {
		generation int64
		issued     time.Duration // after the first
		recorded   bool
	}{
		{3, 0, true},
		{3, 0, false}, // by another dispatcher
		{2, -time.Millisecond, false},
		{4, time.Millisecond, true},
		{3, 0, false},
		{9, 2 * time.Second, true},
		{8, time.Second, false},
		// The record was lost, and nobody knew its generation any more.
		{1, 3 * time.Second, true},
		{1, 3 * time.Second, false},
		{9, 2 * time.Second, false},
		{3, 4 * time.Second, true},
		{9, 5 * time.Second, true},
		{9, 5 * time.Second, false},
	} {
		rotation := feed.KeyRotation{KeyID: asks.KeyID, Prefix: "mk_live_abcd", Generation: step.generation, Cause: v1alpha1.RotationRecovery}
		event := feed.NewKeyRotated(asks.MerchantID, "Acme Coffee", rotation, storetest.RotatedAt.Add(step.issued))
		recorded, err := s.RecordRotation(t.Context(), event, now, feed.History{})
		if err != nil || recorded != step.recorded {
			t.Errorf("step %d, generation %d: recorded %v, %v; want %v", i, step.generation, recorded, err, step.recorded)
		}
		if _, twice := want[event.ID]; step.recorded && twice {
			t.Errorf("step %d, generation %d: %s is the id of another rotation", i, step.generation, event.ID)
		}
		if step.recorded {
			want[event.ID] = event
		}
	}
	if diff := cmp.Diff(want, recordedEvents(t, asks.MerchantID, "evt_key_"+asks.KeyID+"_")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A dispatcher that meets Redis for the first time must not emit of last year's rotations.
func TestOldRotationsAreNotTold(t *testing.T) {
	s := storetest.New(t, shared.URL())
	const month = 30 * 24 * time.Hour
	for _, test := range []struct {
		age      time.Duration
		recorded bool
	}{{month - time.Millisecond, true}, {month, false}, {300 * 24 * time.Hour, false}, {-time.Hour, true}} {
		asks := storetest.Merchant()
		event := storetest.Rotation(asks, 7)
		recorded, err := s.RecordRotation(t.Context(), event, event.OccurredAt.Add(test.age), feed.History{})
		if err != nil || recorded != test.recorded || len(recordedEvents(t, asks.MerchantID, "evt_key_"+asks.KeyID+"_")) > 0 != test.recorded {
			t.Errorf("%s old: recorded %v, %v", test.age, recorded, err)
		}
		// Either way it is known now: the next one is told however old it is, this one never again.
		if recorded, err := s.RecordRotation(t.Context(), storetest.Rotation(asks, 7), storetest.RotatedAt, feed.History{}); err != nil || recorded {
			t.Errorf("%s old: recorded %v again, %v", test.age, recorded, err)
		}
		if recorded, err := s.RecordRotation(t.Context(), storetest.Rotation(asks, 8), storetest.RotatedAt.Add(2*month), feed.History{}); err != nil || !recorded {
			t.Errorf("%s old: the next one is recorded: %v, %v", test.age, recorded, err)
		}
	}
}

func TestWhatWasToldIsRememberedAndTheMemoryRenewed(t *testing.T) {
	s, c := storetest.New(t, shared.URL()), storetest.Inspect(t, shared)
	asks := storetest.Merchant()
	key := storetest.Tag(asks.MerchantID) + "rotation:" + asks.KeyID
	const want = 400 * 24 * time.Hour
	for range 2 {
		event := storetest.Rotation(asks, 7)
		_, err := s.RecordRotation(t.Context(), event, storetest.RotatedAt, feed.History{})
		must(t, err)
		if left := c.PTTL(t.Context(), key).Val(); left > want || left < want-storetest.Timeout {
			t.Errorf("it is remembered for %s, want %s", left, want)
		}
		if stored := c.Get(t.Context(), key).Val(); stored != strconv.FormatInt(event.OccurredAt.UnixMilli(), 10) {
			t.Errorf("Redis holds %s", stored)
		}
		must(t, c.PExpire(t.Context(), key, time.Hour).Err())
	}
	must(t, c.Set(t.Context(), key, "garbage", 0).Err())
	if recorded, err := s.RecordRotation(t.Context(), storetest.Rotation(asks, 8), storetest.RotatedAt, feed.History{}); !errors.Is(err, redis.ErrCorrupt) || recorded {
		t.Errorf("with garbage: %v, %v; want ErrCorrupt", recorded, err)
	}
}

func TestAKeyMadeElsewhereHasNoPrefix(t *testing.T) {
	s := storetest.New(t, shared.URL())
	asks := storetest.Merchant()
	news := feed.KeyRotation{KeyID: asks.KeyID, Generation: 2, Cause: v1alpha1.RotationTrigger}
	event := feed.NewKeyRotated(asks.MerchantID, "Acme Coffee", news, storetest.RotatedAt)
	_, err := s.RecordRotation(t.Context(), event, storetest.RotatedAt, feed.History{})
	must(t, err)
	if diff := cmp.Diff(map[string]feed.Event{event.ID: event}, recordedEvents(t, asks.MerchantID, "evt_key_"+asks.KeyID+"_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Every dispatcher sees every rotation.
func TestManyWhoSeeARotationRecordItOnce(t *testing.T) {
	replicas := []*storetest.Services{storetest.New(t, shared.URL()), storetest.New(t, shared.URL())}
	asks := storetest.Merchant()
	var recorded atomic.Int32
	var seeing sync.WaitGroup
	for i := range 40 {
		seeing.Go(func() {
			first, err := replicas[i%2].RecordRotation(t.Context(), storetest.Rotation(asks, 7), storetest.RotatedAt, feed.History{})
			if err != nil {
				t.Error(err)
			}
			if first {
				recorded.Add(1)
			}
		})
	}
	seeing.Wait()
	if n, events := recorded.Load(), recordedEvents(t, asks.MerchantID, "evt_key_"+asks.KeyID+"_"); n != 1 || len(events) != 1 {
		t.Errorf("recorded %d times, %d events", n, len(events))
	}
}
