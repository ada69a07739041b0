package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

func TestTestMode_SessionsApart(t *testing.T) {
	s, ctx := open(t, shared.URL()), t.Context()
	live := merchant()
	test := with(live, inTestMode)
	once := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	ids := map[bool]session.ID{}
	for _, asks := range []admission.Request{live, test} {
		created := mustCreate(t, s, asks, once)
		if created.Replayed || created.Session.ID.TestMode() != asks.TestMode {
			t.Fatalf("test mode %t: %+v", asks.TestMode, created)
		}
		if again := mustCreate(t, s, asks, once); !again.Replayed || again.Session.ID != created.Session.ID {
			t.Errorf("test mode %t, again: %+v", asks.TestMode, again)
		}
		ids[asks.TestMode] = created.Session.ID
	}
	for _, asks := range []admission.Request{live, test} {
		own, foreign := ids[asks.TestMode], ids[!asks.TestMode]
		if _, read, err := s.Session(ctx, asks, foreign); !errors.Is(err, store.ErrNotFound) || !read.ID.IsZero() {
			t.Errorf("test mode %t reads a session of the other mode: %+v, %v", asks.TestMode, read, err)
		}
		if _, _, err := s.Cancel(ctx, asks, foreign); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("test mode %t cancels a session of the other mode: %v", asks.TestMode, err)
		}
		if _, read, err := s.Session(ctx, asks, own); err != nil || read.Status != session.Pending {
			t.Errorf("test mode %t: %+v, %v", asks.TestMode, read, err)
		}
		if _, read, err := s.PublicSession(ctx, payer(), own); err != nil || read.TestMode != asks.TestMode {
			t.Errorf("publicly, test mode %t: %+v, %v", asks.TestMode, read, err)
		}
	}
	if _, err := s.Settle(ctx, ids[true], paid("a")); !errors.Is(err, store.ErrTestSession) {
		t.Errorf("a rail settles a test session: %v", err)
	}
	if _, err := s.SettleTest(ctx, ids[false], paid("a")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a live session is settled as a test session: %v", err)
	}
	if settled, err := s.SettleTest(ctx, ids[true], paid("a")); err != nil || !settled.Applied {
		t.Errorf("%+v, %v", settled, err)
	}
	for testMode, id := range ids {
		for _, event := range sessionEvents(t, client(t, shared), id) {
			if event.TestMode != testMode || event.MerchantID != live.MerchantID {
				t.Errorf("an event of test mode %t: %+v", testMode, event)
			}
		}
	}
}

// With one limit exhausted the other is untouched.
func TestTestMode_OwnLimit(t *testing.T) {
	s, ctx := open(t, shared.URL()), t.Context()
	one := ratelimit.Policy{RequestsPerSecond: 1, Burst: 1}
	exhaust := func(what string, ask func() error) {
		t.Helper()
		eventually(t, what+" is over its limit", func() bool { return errors.Is(ask(), admission.ErrRateLimited) })
	}
	for _, testMode := range []bool{false, true} {
		asks := limited(one)
		exhausted, other := asks, with(asks, func(a *admission.Request) { a.TestMode = true })
		if testMode {
			exhausted, other = other, exhausted
		}
		exhaust("a key", func() error { _, err := s.Admit(ctx, exhausted); return err })
		if _, err := s.Admit(ctx, other); err != nil {
			t.Errorf("test mode %t is exhausted: the other mode gets %v", testMode, err)
		}
		reads := with(payer(), func(p *store.PublicAdmission) { p.Limit = one })
		spent, fresh := session.NewID(asks.MerchantID, false), session.NewID(asks.MerchantID, true)
		if testMode {
			spent, fresh = fresh, spent
		}
		exhaust("a payer", func() error { _, _, err := s.PublicSession(ctx, reads, spent); return err })
		if _, _, err := s.PublicSession(ctx, reads, fresh); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("test mode %t is exhausted: payers of the other mode get %v", testMode, err)
		}
	}
}

// A live session stores nothing for there being a test mode, and a record that does not fit its id belongs to no mode.
func TestTestMode_InIDAndRecord(t *testing.T) {
	s, c, ctx := open(t, shared.URL()), client(t, shared), t.Context()
	live := merchant()
	test := with(live, inTestMode)
	tag := merchantTag(live.MerchantID)
	for asks, want := range map[*admission.Request]string{&live: live.MerchantID, &test: live.MerchantID + ".test"} {
		id := mustCreate(t, s, *asks, newSession()).Session.ID
		got := c.HGetAll(ctx, tag+"session:"+id.String()).Val()
		if record := want + "\t1250\t900000\t" + asks.KeyID + "\tEUR\t\t\t1001\tAcme Coffee\t\t"; len(got) != 2 || got["f"] != record {
			t.Errorf("stored %v", got)
		}
		other := session.Account(live.MerchantID, !asks.TestMode) + "\t1250\t900000\t\t\t\t\t\tAcme"
		must(t, c.HSet(ctx, tag+"session:"+id.String(), "f", other).Err())
		for _, reads := range []admission.Request{live, test} {
			if _, read, err := s.Session(ctx, reads, id); err == nil {
				t.Errorf("a record of the other mode is read: %+v", read)
			}
		}
		if _, read, err := s.PublicSession(ctx, payer(), id); err == nil {
			t.Errorf("a record of the other mode is public: %+v", read)
		}
	}
}

// Test sessions of certain amounts are settled without a rail, once, however often a dispatcher stops in between. Live ones never are.
func TestSweep_SettlesTests(t *testing.T) {
	server := redistest.Start(t)
	s, c, ctx := open(t, server.URL()), client(t, server), t.Context()
	live := merchantIn(7)
	test := with(live, inTestMode)
	type events = []v1alpha1.WebhookEvent
	tests := []struct {
		amount int64
		status session.Status
		events events
	}{
		{990_001, session.Completed, events{v1alpha1.EventSessionCompleted}},
		{990_002, session.Failed, events{v1alpha1.EventSessionFailed}},
		{990_003, session.Expired, events{v1alpha1.EventSessionExpired}},
		{990_004, session.Pending, events{v1alpha1.EventPaymentMismatch}},
		{990_005, session.Expired, events{v1alpha1.EventSessionExpired, v1alpha1.EventLatePayment}},
	}
	requests := make([]store.NewSession, len(tests))
	for i := range tests {
		requests[i] = with(newSession(), func(n *store.NewSession) {
			n.Charge.AmountCents, n.Idempotency = tests[i].amount, idempotencyKey(t, newID())
		})
		mustCreate(t, s, test, requests[i])
	}
	for i, c := range tests {
		checkSettled(t, s, server, test, requests[i], c.status, c.events)
	}
	for amount := int64(990_000); amount <= 990_006; amount++ {
		created := mustCreate(t, s, live, with(newSession(), func(n *store.NewSession) { n.Charge.AmountCents = amount }))
		if err := c.ZScore(ctx, bucketTag(7)+"expiry", bucketTag(7)+"session:"+created.Session.ID.String()).Err(); !errors.Is(err, goredis.Nil) {
			t.Errorf("a live session of %d cents is to act: %v", amount, err)
		}
	}
}

func checkSettled(t *testing.T, s *services, server *redistest.Server, test admission.Request, request store.NewSession, status session.Status, want []v1alpha1.WebhookEvent) {
	t.Helper()
	c, ctx := client(t, server), t.Context()
	amount, created := request.Charge.AmountCents, mustCreate(t, s, test, request).Session
	for again := range 2 {
		var got []v1alpha1.WebhookEvent
		eventually(t, "the session is settled", func() bool {
			if swept := sweepAll(t, s, 7, 1); swept.Expired != 0 || swept.Corrupt != 0 {
				t.Errorf("%d cents: swept %+v", amount, swept)
			}
			got = eventKinds(sessionEvents(t, c, created.ID))
			return len(got) == len(want)
		})
		_, read, err := s.Session(ctx, test, created.ID)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || read.Status != status {
			t.Errorf("%d cents, time %d: %s, %v, events (-want +got):\n%s", amount, again, read.Status, err, diff)
		}
		if (read.Reason != "") != (status == session.Failed) {
			t.Errorf("%d cents: the reason is %q", amount, read.Reason)
		}
		// As if the dispatcher had ended before the session left the list.
		must(t, c.ZAdd(ctx, bucketTag(7)+"expiry", goredis.Z{Score: 1, Member: bucketTag(7) + "session:" + created.ID.String()}).Err())
	}
	if replayed := mustCreate(t, s, test, request); !replayed.Replayed || replayed.Session.Status != status {
		t.Errorf("%d cents, created again: %+v", amount, replayed)
	}
}
