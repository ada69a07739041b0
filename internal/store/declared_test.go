package store_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestEveryScriptDeclaresWhatItWrites(t *testing.T) {
	server := redistest.Start(t)
	s, asks, c := storetest.OpenWith(t, server.URL(), store.Options{Receipts: true}), merchant(), client(t, server)
	storetest.CheckDeclared(t, server, store.Scripts(), func() { everyBranch(t, server, s, asks, c) })
}

// everyBranch makes each script write all that it ever does.
func everyBranch(t *testing.T, server *redistest.Server, s *services, asks store.Admission, c *goredis.Client) {
	t.Helper()
	ctx, tag := t.Context(), bucketTag(asks.MerchantID)
	create := func(change ...func(*store.NewSession)) session.Session {
		wanted := newSession()
		for _, c := range change {
			c(&wanted)
		}
		return mustCreate(t, s, asks, wanted).Session
	}
	all := func(n *store.NewSession) {
		n.EmitCreated, n.Charge.CustomerEmail, n.Idempotency = true, "a@example.com", idempotencyKey(t, newID())
	}
	expired := func(change ...func(*store.NewSession)) session.ID {
		created := create(append(change, short)...)
		due(t, s, created)
		return created.ID
	}
	admit := func(change func(*store.Admission)) {
		_, _ = s.Admit(ctx, with(asks, change)) // some are refused
	}

	admit(func(*store.Admission) {})
	admit(func(a *store.Admission) { a.Digest = newDigest() }) // its last use is written
	admit(func(a *store.Admission) { a.Limit.Burst = 1 })
	must(t, second(s.AdmitRotation(ctx, asks, ratelimit.Policy{RequestsPerSecond: 1, Burst: 100})))
	key := store.KeyRef{MerchantID: asks.MerchantID, KeyID: newID()}
	must(t, second(s.LimitIssue(ctx, key, ratelimit.Policy{RequestsPerSecond: 1, Burst: 100})))
	must(t, s.WriteOverride(ctx, store.Override{KeyRef: key}))
	must(t, s.WriteOverride(ctx, store.Override{KeyRef: key, Ended: true}))
	_, _, err := s.Overrides(ctx, key)
	must(t, err)
	must(t, second(s.LastUses(ctx, session.BucketOf(key.MerchantID), []string{key.KeyID}, time.Time{})))

	everyBlockedBranch(t, s, asks.MerchantID)
	for range 2 {
		must(t, second(s.Settle(ctx, create(all).ID, paid("a"))))
	}
	must(t, c.ZAdd(ctx, tag+"receipts", goredis.Z{Score: 1, Member: "what is this"}).Err())
	receipts, err := s.LeaseReceipts(ctx, session.BucketOf(asks.MerchantID), time.Minute, 10)
	must(t, err)
	must(t, second(s.Receipt(ctx, receipts[0])))
	must(t, s.DeferReceipt(ctx, receipts[0], time.Minute))
	must(t, s.EndReceipt(ctx, receipts[1]))
	must(t, second(s.PendingReceipts(ctx)))
	_, page, err := s.Feed(ctx, asks, feed.Cursor{}, 10)
	must(t, err)
	_, _, err = s.Feed(ctx, asks, page.Cursor, 10)
	must(t, err)
	create(all)
	create(func(n *store.NewSession) { n.EmitCreated = true })
	repeated := with(newSession(), func(n *store.NewSession) { all(n); short(n) })
	original := mustCreate(t, s, asks, repeated).Session
	mustCreate(t, s, asks, repeated)
	due(t, s, original)
	mustCreate(t, s, asks, repeated)

	test := with(asks, inTestMode)
	for _, amount := range []int64{session.TestAmountCompletes, session.TestAmountMismatches, session.TestAmountLate} {
		acting := mustCreate(t, s, test, with(newSession(), func(n *store.NewSession) { all(n); n.Charge.AmountCents = amount })).Session
		must(t, c.ZAdd(ctx, tag+"expiry", goredis.Z{Score: 1, Member: tag + "session:" + acting.ID.String()}).Err())
	}

	for _, read := range []func(session.ID){
		func(id session.ID) { _, _, err := s.Session(ctx, asks, id); must(t, err) },
		func(id session.ID) { _, _, err := s.PublicSession(ctx, payer(), id); must(t, err) },
		func(id session.ID) { must(t, second(s.WatchedSession(ctx, id))) },
		func(id session.ID) { must(t, second(s.Story(ctx, id))) },
		func(id session.ID) { must(t, second(s.Payments(ctx, id))) },
		func(id session.ID) { // held, renewed, refused, released
			for _, hold := range []store.Hold{holding(bank, "a"), holding(bank, "a"), holding(card, "a"), releasing(bank, "a")} {
				_, _ = s.Hold(ctx, id, hold)
			}
		},
		func(id session.ID) { // held, and failed otherwise
			_, _ = s.Hold(ctx, id, holding(bank, "a"))
			must(t, second(s.Settle(ctx, id, failed("b"))))
			must(t, second(s.Payments(ctx, id)))
			_, _, _ = s.Cancel(ctx, asks, id)
			must(t, second(s.Settle(ctx, id, failed("a"))))
		},
		func(session.ID) { _, _, err := s.AdmitEnded(ctx, asks, store.EndedQuery{Limit: 1}); must(t, err) },
		func(session.ID) { must(t, second(s.Ended(ctx, accountOf(asks), store.EndedQuery{Limit: 1}))) },
		func(session.ID) { _, _, err := s.AdmitOrderSessions(ctx, asks, "1001"); must(t, err) },
		func(id session.ID) { _, _, _ = s.Cancel(ctx, asks, id) },
		func(id session.ID) { _, _ = s.Refund(ctx, id, refunding("none", "r", 1)) }, // no such payment
		func(id session.ID) { must(t, second(s.Settle(ctx, id, paid("a")))) },       // too late
		func(id session.ID) { must(t, second(s.Settle(ctx, id, failed("a")))) },
	} {
		read(create().ID)
		read(expired())
	}
	must(t, second(s.Settle(ctx, create().ID, of(7, paid("a")))))
	refunded := create().ID
	must(t, second(s.Settle(ctx, refunded, by(rail, paid("a")))))
	must(t, second(s.Settle(ctx, refunded, by(rail, paid("b")))))
	for _, ref := range []string{"a", "b", "b"} { // the last one again
		must(t, second(s.Refund(ctx, refunded, refunding(ref, ref, 1250))))
	}
	must(t, second(s.Settle(ctx, refunded, by(rail, paid("c")))))
	must(t, second(s.RefundDeleted(ctx, refunded, refunding("c", "c", 1))))
	must(t, second(s.Owed(ctx, []time.Duration{0})))
	copied := open(t, server.URL(), copied(1, time.Millisecond)) // nobody follows
	for range 2 {
		_, _ = copied.Settle(ctx, original.ID, paid("b"))
		_, _ = copied.Refund(ctx, original.ID, refunding("b", "b", 1250))
	}

	expired()
	garbled := expired()
	must(t, c.HSet(ctx, tag+"session:"+garbled.String(), "x", "nan").Err())
	must(t, c.ZAdd(ctx, tag+"expiry", goredis.Z{Score: 1, Member: expired().String()}, goredis.Z{Score: 1, Member: create().ID.String()}).Err())
	must(t, c.RPush(ctx, tag+"expiry:7", "{b99}:what is this").Err())
	must(t, c.Set(ctx, tag+"expiry:8", "text", 0).Err())
	must(t, c.ZAdd(ctx, tag+"expiry", goredis.Z{Score: 1, Member: "7"}, goredis.Z{Score: 1, Member: "8"}).Err())
	sweepAll(t, s, session.BucketOf(asks.MerchantID), 2)
}
