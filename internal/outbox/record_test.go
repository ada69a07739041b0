package outbox_test

import (
	"errors"
	"maps"
	"slices"
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
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// bank is the rail of all reports.
var bank = session.NewRail("system:serviceaccount:rails:bank")

// The names of fields are a contract with the next release: events are kept for 30 days.
func TestRecord_Fields(t *testing.T) {
	s, c := storetest.New(t, shared.URL()), storetest.Inspect(t, shared)
	asks := storetest.Merchant()
	request := with(storetest.NewSession(), func(n *store.NewSession) {
		n.EmitCreated = true
		n.Charge = session.Charge{AmountCents: 1250, OrderRef: "1001", TaxCents: new(int64(0)), TipCents: new(int64(7)), CustomerEmail: "ada@example.com"}
	})
	created := storetest.MustCreate(t, s, asks, request).Session
	settled, err := s.Settle(t.Context(), created.ID, session.Payment{
		Rail: bank, Ref: "rail-1", Outcome: session.Failed, AmountCents: 1250, PaidAt: time.UnixMilli(1234), Reason: "no funds",
	})
	must(t, err)
	late := session.Payment{Rail: bank, Ref: "rail-2", Outcome: session.Completed, AmountCents: 999, PaidAt: time.UnixMilli(5678)}
	_, err = s.Settle(t.Context(), created.ID, late)
	must(t, err)

	random := created.ID.String()[len(created.ID.String())-18:]
	expires, ended := millis(created.ExpiresAt), millis(settled.Session.EndedAt)
	record := "\n" + asks.MerchantID + "\t1250\t900000\t" + asks.KeyID + "\tEUR\t0\t7\t1001\tAcme Coffee\t\t"
	for mark, want := range map[feed.Mark][3]string{
		feed.MarkCreated:              {"1\tsession.created\t", millis(created.CreatedAt), "\t1\t\t" + expires + "\t\t\t\t\t"},
		feed.MarkEnded:                {"1\tsession.failed\t", ended, "\t2\tFAILED\t" + expires + "\t\t" + bank.Scope("rail-1") + "\tno funds\t\t1234"},
		feed.MarkLate(bank, "rail-2"): {"1\tsession.late_payment\t", "", "\t3\tFAILED\t" + expires + "\t" + ended + "\t" + bank.Scope("rail-2") + "\tno funds\t999\t5678"},
	} {
		id := feed.SessionEventID(created.ID, mark)
		key := storetest.Tag(asks.MerchantID) + "event:" + id
		got := c.HGetAll(t.Context(), key).Val()
		at := want[1]
		if at == "" { // only the clock of Redis knows
			at, _, _ = strings.Cut(strings.TrimPrefix(got["b"], want[0]), "\t")
		}
		stored := map[string]string{"m": asks.MerchantID, "b": want[0] + at + "\t" + random + want[2] + record}
		if diff := cmp.Diff(stored, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mark, diff)
		}
		const month = 30 * 24 * time.Hour
		if left := c.PTTL(t.Context(), key).Val(); left > month || left < month-storetest.Timeout {
			t.Errorf("%s is kept for %s", mark, left)
		}
		if _, due, there := storetest.Queued(t, c, storetest.Tag(asks.MerchantID), id); !there || millis(due) != at {
			t.Errorf("%s is due at %s, want %s", mark, millis(due), at)
		}
	}
}

func millis(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

func TestParseEvent(t *testing.T) {
	s, c := storetest.New(t, shared.URL()), storetest.Inspect(t, shared)
	asks := storetest.Merchant()
	request := with(storetest.NewSession(), func(n *store.NewSession) { n.EmitCreated = true })
	created := storetest.MustCreate(t, s, asks, request).Session
	paidAt := time.UnixMilli(1_700_000_000_123).UTC()
	_, err := s.Settle(t.Context(), created.ID, session.Payment{Rail: bank, Ref: "other", Outcome: session.Completed, AmountCents: 1, PaidAt: paidAt})
	must(t, err)
	settled, err := s.Settle(t.Context(), created.ID, session.Payment{Rail: bank, Ref: "rail-1", Outcome: session.Completed, AmountCents: 1250, PaidAt: paidAt})
	must(t, err)
	_, err = s.Settle(t.Context(), created.ID, session.Payment{Rail: bank, Ref: "rail-2", Outcome: session.Completed, AmountCents: 1250, Currency: "GBP"})
	must(t, err)

	// The event of a rejected payment does not show the session's own payment.
	unpaid := with(settled.Session, func(s *session.Session) { s.PaymentRail, s.PaymentRef, s.PaidAt = "", "", time.Time{} })
	want := []feed.Event{
		{
			ID: feed.SessionEventID(created.ID, feed.MarkCreated), Kind: v1alpha1.EventSessionCreated,
			Session: &feed.SessionChange{Session: created, Sequence: 1},
		},
		{
			ID: feed.SessionEventID(created.ID, feed.MarkMismatch(bank, "other")), Kind: v1alpha1.EventPaymentMismatch,
			Session: &feed.SessionChange{Session: created, Sequence: 2, Payment: &session.Payment{Rail: bank, Ref: "other", Outcome: session.Completed, AmountCents: 1, Currency: "EUR", PaidAt: paidAt}},
		},
		{
			ID: feed.SessionEventID(created.ID, feed.MarkEnded), Kind: v1alpha1.EventSessionCompleted,
			Session: &feed.SessionChange{Session: settled.Session, Sequence: 3},
		},
		{
			ID: feed.SessionEventID(created.ID, feed.MarkLate(bank, "rail-2")), Kind: v1alpha1.EventLatePayment,
			Session: &feed.SessionChange{Session: unpaid, Sequence: 4, Payment: &session.Payment{Rail: bank, Ref: "rail-2", Outcome: session.Completed, AmountCents: 1250, Currency: "GBP"}},
		},
	}
	got := storetest.Events(t, c, created.ID)
	for i := range want {
		want[i].MerchantID, want[i].MerchantName = asks.MerchantID, "Acme Coffee"
		if i < len(got) && got[i].Session.Payment != nil { // only the clock of Redis knows when
			want[i].OccurredAt = got[i].OccurredAt
		}
	}
	want[0].OccurredAt, want[2].OccurredAt = created.CreatedAt, settled.Session.EndedAt
	if diff := cmp.Diff(want, got, sameSession); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, event := range got {
		if event.OccurredAt.Before(created.CreatedAt) {
			t.Errorf("%s occurred at %s, before the session was created", event.Kind, event.OccurredAt)
		}
	}
}

func TestRecord_SessionCreated(t *testing.T) {
	s, c := storetest.New(t, shared.URL()), storetest.Inspect(t, shared)
	for _, emit := range []bool{false, true} {
		asks := storetest.Merchant()
		request := with(storetest.NewSession(), func(n *store.NewSession) {
			n.EmitCreated, n.Idempotency = emit, storetest.IdempotencyKey(t, "order-1001")
		})
		id := storetest.MustCreate(t, s, asks, request).Session.ID
		storetest.MustCreate(t, s, asks, request) // a replay creates nothing
		_, _, err := s.Cancel(t.Context(), asks, id)
		must(t, err)
		want := []v1alpha1.WebhookEvent{v1alpha1.EventSessionCreated, v1alpha1.EventSessionCancelled}
		if !emit {
			want = want[1:]
		}
		got := storetest.Events(t, c, id)
		if !slices.Equal(storetest.Kinds(got), want) {
			t.Errorf("asked %v: recorded %v, want %v", emit, storetest.Kinds(got), want)
		}
		for i, event := range got {
			if event.Session.Sequence != int64(i+1) {
				t.Errorf("asked %v: event %d has the sequence %d", emit, i+1, event.Session.Sequence)
			}
		}
	}
}

func TestParseEvent_Corrupt(t *testing.T) {
	s, c := storetest.New(t, shared.URL()), storetest.Inspect(t, shared)
	id := storetest.MustCreate(t, s, storetest.Merchant(), with(storetest.NewSession(), func(n *store.NewSession) { n.EmitCreated = true })).Session.ID
	_, err := s.Settle(t.Context(), id, session.Payment{Rail: bank, Ref: "rail-1", Outcome: session.Completed, AmountCents: 1, PaidAt: time.UnixMilli(1)})
	must(t, err)
	eventID := feed.SessionEventID(id, feed.MarkMismatch(bank, "rail-1"))
	fields := c.HGetAll(t.Context(), storetest.BucketTag(id.Bucket())+"event:"+eventID).Val()
	for name := range fields {
		damaged := map[string]string{"attempts": "3"} // of its delivery, and ignored
		maps.Copy(damaged, fields)
		if _, err := outbox.ParseEvent(eventID, damaged); err != nil {
			t.Fatalf("unchanged: %v", err)
		}
		delete(damaged, name)
		if event, err := outbox.ParseEvent(eventID, damaged); err == nil {
			t.Errorf("without %s it is read as %+v", name, event)
		}
		damaged[name] = "garbage"
		if event, err := outbox.ParseEvent(eventID, damaged); err == nil {
			t.Errorf("with garbage for %s it is read as %+v", name, event)
		}
	}
}

func TestRecordTest(t *testing.T) {
	s := storetest.New(t, shared.URL())
	merchantID := storetest.ID()
	want := map[string]feed.Event{}
	for i, step := range []struct {
		trigger  string
		recorded bool
	}{
		{"monday", true}, {"monday", false}, {"tuesday: \u2028", true}, {"tuesday: \u2028", false},
		{"monday", false}, // its event still waits
	} {
		event := feed.NewWebhookTest(merchantID, "Acme Coffee", step.trigger, storetest.RotatedAt.Add(time.Duration(i)*time.Hour))
		recorded, err := s.RecordTest(t.Context(), event)
		if err != nil || recorded != step.recorded {
			t.Errorf("%d: recorded %v, %v; want %v", i, recorded, err, step.recorded)
		}
		if step.recorded {
			want[event.ID] = event
		}
	}
	if diff := cmp.Diff(want, recordedEvents(t, merchantID, "evt_test_"+merchantID+"_")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Every dispatcher sees every test.
func TestRecordTest_ManyDispatchers(t *testing.T) {
	s := storetest.New(t, shared.URL())
	merchantID := storetest.ID()
	var recorded atomic.Int32
	var seeing sync.WaitGroup
	for i := range 40 {
		seeing.Go(func() {
			event := feed.NewWebhookTest(merchantID, "Acme Coffee", "monday", storetest.RotatedAt.Add(time.Duration(i)))
			if first, err := s.RecordTest(t.Context(), event); err != nil {
				t.Error(err)
			} else if first {
				recorded.Add(1)
			}
		})
	}
	seeing.Wait()
	if n, events := recorded.Load(), recordedEvents(t, merchantID, "evt_test_"+merchantID+"_"); n != 1 || len(events) != 1 {
		t.Errorf("recorded %d times, %d events", n, len(events))
	}
}

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
		// The record was lost, and with it its generation.
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

// A dispatcher that meets Redis for the first time must not emit for last year's rotations.
func TestRecordRotation_TooOld(t *testing.T) {
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
		// Either way it is known now: the next one is recorded however old it is, this one never again.
		if recorded, err := s.RecordRotation(t.Context(), storetest.Rotation(asks, 7), storetest.RotatedAt, feed.History{}); err != nil || recorded {
			t.Errorf("%s old: recorded %v again, %v", test.age, recorded, err)
		}
		if recorded, err := s.RecordRotation(t.Context(), storetest.Rotation(asks, 8), storetest.RotatedAt.Add(2*month), feed.History{}); err != nil || !recorded {
			t.Errorf("%s old: the next one is recorded: %v, %v", test.age, recorded, err)
		}
	}
}

func TestRecordRotation_IsRemembered(t *testing.T) {
	s, c := storetest.New(t, shared.URL()), storetest.Inspect(t, shared)
	asks := storetest.Merchant()
	key := storetest.Tag(asks.MerchantID) + "rotation:" + asks.KeyID
	const want = 400 * 24 * time.Hour
	for range 2 {
		event := storetest.Rotation(asks, 7)
		_, err := s.RecordRotation(t.Context(), event, storetest.RotatedAt, feed.History{})
		must(t, err)
		if left := c.PTTL(t.Context(), key).Val(); left > want || left < want-storetest.Timeout {
			t.Errorf("it is kept for %s, want %s", left, want)
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

func TestRecordRotation_NoPrefix(t *testing.T) {
	s := storetest.New(t, shared.URL())
	asks := storetest.Merchant()
	rotation := feed.KeyRotation{KeyID: asks.KeyID, Generation: 2, Cause: v1alpha1.RotationTrigger}
	event := feed.NewKeyRotated(asks.MerchantID, "Acme Coffee", rotation, storetest.RotatedAt)
	_, err := s.RecordRotation(t.Context(), event, storetest.RotatedAt, feed.History{})
	must(t, err)
	if diff := cmp.Diff(map[string]feed.Event{event.ID: event}, recordedEvents(t, asks.MerchantID, "evt_key_"+asks.KeyID+"_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Every dispatcher sees every rotation.
func TestRecordRotation_ManyDispatchers(t *testing.T) {
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

// A rotation of a test key is an event of test mode, too.
func TestRecordRotation_TestMode(t *testing.T) {
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
