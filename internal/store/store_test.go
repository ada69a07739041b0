package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestNew_RetentionTooShort(t *testing.T) {
	if _, err := store.New(nil, store.Options{SessionRetention: 23 * time.Hour}); err == nil {
		t.Error("sessions that end before their keys: accepted")
	}
}

func TestCheck_EvictionPolicy(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	c := client(t, server)
	for policy, want := range map[string]error{
		"noeviction": nil, "allkeys-lru": redis.ErrEviction, "volatile-ttl": redis.ErrEviction, "volatile-lfu": redis.ErrEviction,
	} {
		if err := c.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: Check = %v, want %v", policy, err, want)
		}
		if got, err := s.EvictionPolicy(t.Context()); got != policy || err != nil {
			t.Errorf("%s: EvictionPolicy = %s, %v", policy, got, err)
		}
	}
}

func TestCheck_HiddenEvictionPolicy(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server)
	// Without this right all else works.
	rights := slices.DeleteFunc(storetest.DocumentedRights(t), func(rule string) bool { return rule == "+info" })
	s := open(t, "redis://"+rights.User(t, c)+"@"+server.Addr()+"/0")
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if got, err := s.EvictionPolicy(t.Context()); got != "" || err != nil {
		t.Errorf("EvictionPolicy = %q, %v; want none", got, err)
	}
	assertRecovers(t, s)
	id := merchant().MerchantID
	for i := range blocked.MaxBlocks + 1 {
		must(t, s.Blocked.Add(t.Context(), id, map[string]int64{fmt.Sprintf("10.0.%d.0/24", i): 1}))
	}
	asks := merchant()
	must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, paid("a"))))
	_, _, err := s.Cancel(t.Context(), asks, mustCreate(t, s, asks, newSession()).Session.ID)
	must(t, err)

	wrong := open(t, "redis://merchant-operator:wrong@"+server.Addr()+"/0")
	if err := wrong.Check(t.Context()); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("with a wrong password: Check = %v, want ErrUnavailable", err)
	}
}

// make run falls back to this embedded server when the machine has no redis-server.
func TestOperations_EmbeddedServer(t *testing.T) {
	server := miniredis.RunT(t)
	s := open(t, "redis://"+server.Addr())
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	assertRecovers(t, s)
	asks := merchant()
	request := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	created := mustCreate(t, s, asks, request)
	for i := range blocked.MaxBlocks + 2 {
		must(t, s.Blocked.Add(t.Context(), asks.MerchantID, map[string]int64{fmt.Sprintf("10.0.%d.0/24", i): 1}))
	}
	all, _, err := s.Blocked.List(t.Context(), session.MerchantBucket(asks.MerchantID))
	if err != nil || len(all) != 1 || len(all[0].Blocks) < blocked.MaxBlocks {
		t.Errorf("blocked are %+v, %v", all, err)
	}
	again := mustCreate(t, s, asks, request)
	if !again.Replayed || again.Mismatch || again.Session.ID != created.Session.ID {
		t.Errorf("a repeated Idempotency-Key: %+v", again)
	}
	if _, _, err := s.PublicSession(t.Context(), payer(), created.Session.ID); err != nil {
		t.Errorf("public read: %v", err)
	}
	if _, _, err := s.Cancel(t.Context(), asks, created.Session.ID); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if late, err := s.Settle(t.Context(), created.Session.ID, paid("a")); err != nil || !late.RefundRequired {
		t.Errorf("settle: %+v, %v", late, err)
	}
	expiring := mustCreate(t, s, asks, with(newSession(), short)).Session
	due(t, s, expiring)
	if swept := sweepAll(t, s, expiring.ID.Bucket(), 10); swept.Expired != 1 {
		t.Errorf("sweep: %+v", swept)
	}
	if recorded, err := s.RecordRotation(t.Context(), newRotation(asks, 2), rotatedAt, feed.History{}); err != nil || !recorded {
		t.Errorf("record a rotation: %v, %v", recorded, err)
	}
	if err := s.Keys.WriteOverride(t.Context(), keystate.Override{Ref: keyRef(asks), Order: published.Order{Revision: 9}}); err != nil {
		t.Errorf("write an override: %v", err)
	}
	if _, err := s.Admit(t.Context(), asks); !errors.Is(err, admission.ErrKeyRejected) {
		t.Errorf("a revoked key: %v", err)
	}
}

// The names are a contract: other programs, dashboards and the next release find them.
func TestKeys_NamesAndLifetimes(t *testing.T) {
	s := storetest.OpenWith(t, shared.URL(), store.Options{SessionRetention: 48 * time.Hour})
	asks := with(merchant(), func(a *admission.Request) { a.Limit.RequestsPerSecond = 1 }) // so that its entry stays a while
	tag := merchantTag(asks.MerchantID)
	short := with(newSession(), func(n *store.NewSession) {
		n.Lifetime = time.Minute
		n.Idempotency = idempotencyKey(t, "order-1001")
	})
	long := with(newSession(), func(n *store.NewSession) {
		n.Lifetime = 36 * time.Hour
		n.Idempotency = idempotencyKey(t, "order-1002")
	})
	shortID := mustCreate(t, s, asks, short).Session.ID
	longID := mustCreate(t, s, asks, long).Session.ID
	override := keystate.Override{Ref: keyRef(asks), Order: published.Order{Revision: 1}, Accepted: []keystate.Accepted{{Digest: asks.Digest}}}
	if err := s.Keys.WriteOverride(t.Context(), override); err != nil {
		t.Fatal(err)
	}

	c := client(t, shared)
	for key, want := range map[string]time.Duration{
		tag + "session:" + shortID.String():                              48*time.Hour + time.Minute,
		tag + "session:" + longID.String():                               84 * time.Hour,
		tag + "idem:" + asks.MerchantID + ":" + short.Idempotency.Hash(): 24 * time.Hour,
		tag + "idem:" + asks.MerchantID + ":" + long.Idempotency.Hash():  36 * time.Hour,
		tag + "order:" + asks.MerchantID + ":_mdf56rugwtv7Qm2TgNPhN":     84 * time.Hour, // as its newest session
		tag + "key:" + asks.KeyID:                                        7 * 24 * time.Hour,
		tag + "used:" + asks.KeyID:                                       90 * 24 * time.Hour,
	} {
		if got := c.PTTL(t.Context(), key).Val(); got > want || got < want-patience {
			t.Errorf("%s ends in %s, want %s", key, got, want)
		}
	}

	// The limiter forgets a caller when there is nothing left to remember: after 61 requests of 1 s each.
	for range 59 {
		if _, err := s.Admit(t.Context(), asks); err != nil {
			t.Fatal(err)
		}
	}
	key := tag + "rate:" + asks.MerchantID
	if got := c.PTTL(t.Context(), key).Val(); got > 61*time.Second+time.Millisecond || got < 61*time.Second-patience {
		t.Errorf("%s ends in %s, want 61 s", key, got)
	}

	// No two merchants of this test share a key, so whatever else bears the merchant's id is a key
	// that is unknown.
	keys := c.Keys(t.Context(), "*"+asks.MerchantID+"*").Val()
	if len(keys) != 6 { // rate, two idem, two sessions and their order
		t.Errorf("keys with the merchant's id: %v", keys)
	}
}

func TestOperations_OneCommand(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), func(o *redis.Options) { o.PoolSize = 1 })
	asks := merchant()
	request := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	id := mustCreate(t, s, asks, request).Session.ID
	cancelled := mustCreate(t, s, asks, newSession()).Session.ID
	generation := int64(1)

	all := map[string]func(context.Context) error{
		"admit":           func(ctx context.Context) error { _, err := s.Admit(ctx, asks); return err },
		"create":          func(ctx context.Context) error { _, _, err := s.CreateSession(ctx, asks, newSession()); return err },
		"replayed create": func(ctx context.Context) error { _, _, err := s.CreateSession(ctx, asks, request); return err },
		"merchant's read": func(ctx context.Context) error { _, _, err := s.Session(ctx, asks, id); return err },
		"read the feed":   func(ctx context.Context) error { _, _, err := s.Feed(ctx, asks, feed.Cursor{}, 10); return err },
		"list what ended": func(ctx context.Context) error {
			_, _, err := s.Ended(ctx, asks, store.EndedQuery{Limit: 10})
			return err
		},
		"list an order": func(ctx context.Context) error { _, _, err := s.OrderSessions(ctx, asks, "1001"); return err },
		"rail's read":   func(ctx context.Context) error { _, err := s.Payments(ctx, id); return err },
		"public read":   func(ctx context.Context) error { _, _, err := s.PublicSession(ctx, payer(), id); return err },
		"cancel": func(ctx context.Context) error { // the first one cancels, the others find it done
			_, _, err := s.Cancel(ctx, asks, cancelled)
			return err
		},
		"settle": func(ctx context.Context) error { // the first one ends it, the others are of money after the end
			_, err := s.Settle(ctx, id, paid(newID()))
			return err
		},
		"create and record": func(ctx context.Context) error {
			_, _, err := s.CreateSession(ctx, asks, with(newSession(), func(n *store.NewSession) { n.EmitCreated = true }))
			return err
		},
		"sweep of nothing": func(ctx context.Context) error { _, err := s.Sweep(ctx, id.Bucket(), 10); return err },
		"record a rotation": func(ctx context.Context) error {
			generation++
			_, err := s.RecordRotation(ctx, newRotation(asks, generation), rotatedAt, feed.History{})
			return err
		},
		"write an override": func(ctx context.Context) error {
			return s.Keys.WriteOverride(ctx, keystate.Override{Ref: keyRef(asks), Order: published.Order{Revision: 1}, Accepted: []keystate.Accepted{{Digest: asks.Digest}}})
		},
	}
	for name, operation := range all {
		if err := operation(t.Context()); err != nil { // the server gets to know the script
			t.Fatalf("%s: %v", name, err)
		}
		commands := clientCommands(t, server, func() {
			for range 3 {
				if err := operation(t.Context()); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		})
		if want := []string{"evalsha", "evalsha", "evalsha"}; !slices.Equal(commands, want) {
			t.Errorf("%s, three times: %v, want %v", name, commands, want)
		}
	}
}

func TestOperations_AfterScriptFlush(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), func(o *redis.Options) { o.PoolSize = 1 })
	asks := merchant()
	mustCreate(t, s, asks, newSession())
	c := client(t, server)
	commands := clientCommands(t, server, func() {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, s, asks, newSession())
		mustCreate(t, s, asks, newSession())
	})
	if want := []string{"script", "evalsha", "eval", "evalsha"}; !slices.Equal(commands, want) {
		t.Errorf("%v, want %v", commands, want)
	}
	if n := len(c.Keys(t.Context(), "*:session:*").Val()); n != 3 {
		t.Errorf("3 creates left %d sessions", n)
	}
}

func TestScripts_DeclareTheirKeys(t *testing.T) {
	server := redistest.Start(t)
	s, asks, c := storetest.OpenWith(t, server.URL(), store.Options{Receipts: true}), merchant(), client(t, server)
	storetest.CheckDeclared(t, server, func() { everyBranch(t, server, s, asks, c) })
}

// everyBranch makes each script write all that it ever does.
func everyBranch(t *testing.T, server *redistest.Server, s *services, asks admission.Request, c *goredis.Client) {
	t.Helper()
	ctx, tag := t.Context(), merchantTag(asks.MerchantID)
	create := func(change ...func(*store.NewSession)) session.Session {
		request := newSession()
		for _, c := range change {
			c(&request)
		}
		return mustCreate(t, s, asks, request).Session
	}
	all := func(n *store.NewSession) {
		n.EmitCreated, n.Charge.CustomerEmail, n.Idempotency = true, "a@example.com", idempotencyKey(t, newID())
	}
	expired := func(change ...func(*store.NewSession)) session.ID {
		created := create(append(change, short)...)
		due(t, s, created)
		return created.ID
	}
	for range 2 {
		must(t, second(s.Settle(ctx, create(all).ID, paid("a"))))
	}
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
		settles := mustCreate(t, s, test, with(newSession(), func(n *store.NewSession) { all(n); n.Charge.AmountCents = amount })).Session
		must(t, c.ZAdd(ctx, tag+"expiry", goredis.Z{Score: 1, Member: tag + "session:" + settles.ID.String()}).Err())
	}

	for _, read := range []func(session.ID){
		func(id session.ID) { _, _, err := s.Session(ctx, asks, id); must(t, err) },
		func(id session.ID) { _, _, err := s.PublicSession(ctx, payer(), id); must(t, err) },
		func(id session.ID) { must(t, second(s.WatchedSession(ctx, id))) },
		func(id session.ID) { must(t, second(s.ReadStory(ctx, id))) },
		func(id session.ID) { must(t, second(s.Payments(ctx, id))) },
		func(id session.ID) { // held, renewed, rejected, released
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
		func(session.ID) { _, _, err := s.Ended(ctx, asks, store.EndedQuery{Limit: 1}); must(t, err) },
		func(session.ID) { must(t, second(s.ReadEnded(ctx, newAccount(asks), store.EndedQuery{Limit: 1}))) },
		func(session.ID) { _, _, err := s.OrderSessions(ctx, asks, "1001"); must(t, err) },
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
	asked := paidSession(t, s, asks)
	for _, key := range []string{"a", "b", "c", "a"} {
		must(t, third(s.RequestRefund(ctx, asks, asked, asking(t, key, 400))))
	}
	must(t, second(s.RequestRefundFor(ctx, asked, asking(t, "d", 50))))
	must(t, second(s.Owed(ctx, rail, store.OwedPlace{}, 10)))
	for range 2 {
		must(t, second(s.RejectRefund(ctx, asked, store.Rejection{Rail: rail, PaymentRef: "card-1", RefundID: session.NewRefundID(asked, idempotencyKey(t, "a"))})))
	}
	must(t, second(s.Refund(ctx, asked, refunding("card-1", session.NewRefundID(asked, idempotencyKey(t, "b")), 400))))
	must(t, second(s.Refund(ctx, asked, refunding("card-1", "own", 850)))) // displaces the others
	testMode := with(asks, inTestMode)
	must(t, third(s.RequestRefund(ctx, testMode, paidSession(t, s, testMode), asking(t, "a", 400))))
	must(t, second(s.RefundDeleted(ctx, refunded, refunding("c", "c", 1))))
	must(t, second(s.CountOwed(ctx, []time.Duration{0})))
	must(t, second(s.OverdueRequests(ctx, store.Account{MerchantID: asks.MerchantID}, 0)))
	copied := open(t, server.URL(), copied(1, time.Millisecond)) // nobody follows
	for range 2 {
		_, _ = copied.Settle(ctx, original.ID, paid("b"))
		_, _ = copied.Refund(ctx, original.ID, refunding("b", "b", 1250))
	}

	expired()
	unreadable := expired()
	must(t, c.HSet(ctx, tag+"session:"+unreadable.String(), "x", "nan").Err())
	must(t, c.ZAdd(ctx, tag+"expiry", goredis.Z{Score: 1, Member: expired().String()}, goredis.Z{Score: 1, Member: create().ID.String()}).Err())
	must(t, c.RPush(ctx, tag+"expiry:7", "{b99}:what is this").Err())
	must(t, c.Set(ctx, tag+"expiry:8", "text", 0).Err())
	must(t, c.ZAdd(ctx, tag+"expiry", goredis.Z{Score: 1, Member: "7"}, goredis.Z{Score: 1, Member: "8"}).Err())
	sweepAll(t, s, session.MerchantBucket(asks.MerchantID), 2)
}

const operationErrors = "merchant_operator_redis_operation_errors_total"

func TestMetrics_Operations(t *testing.T) {
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	s := open(t, server.URL(), func(o *redis.Options) { o.Registerer = registry })
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	for range 2 {
		_, _, err := s.Session(t.Context(), asks, created.ID)
		must(t, err)
	}
	if got := operationCounts(t, registry); got["create"] != 1 || got["read"] != 2 || len(got) != 2 {
		t.Errorf("counted %v, want one create and two reads", got)
	}
	if n, err := testutil.GatherAndCount(registry, operationErrors); err != nil || n != 0 {
		t.Errorf("%d errors of operations that went well, %v", n, err)
	}
}

func TestMetrics_ErrorsByCause(t *testing.T) {
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	s := open(t, server.URL(), func(o *redis.Options) { o.Registerer = registry })
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session

	hungUp, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, _, err := s.Session(hungUp, asks, created.ID); err == nil {
		t.Error("a caller who is gone got an answer")
	}
	must(t, client(t, server).Set(t.Context(), merchantTag(asks.MerchantID)+"session:"+created.ID.String(), "not a hash", 0).Err())
	if _, _, err := s.Session(t.Context(), asks, created.ID); err == nil {
		t.Error("a session that cannot be read was read")
	}
	server.Stop()
	if _, err := s.Admit(t.Context(), asks); err == nil {
		t.Error("admitted without Redis")
	}
	want := `
# HELP merchant_operator_redis_operation_errors_total Operations that Redis did not answer as it should, by cause: queue, timeout, connection, answer, replicas or cancelled.
# TYPE merchant_operator_redis_operation_errors_total counter
merchant_operator_redis_operation_errors_total{cause="answer",operation="read"} 1
merchant_operator_redis_operation_errors_total{cause="cancelled",operation="read"} 1
merchant_operator_redis_operation_errors_total{cause="connection",operation="admit"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), operationErrors); err != nil {
		t.Error(err)
	}
}

func TestMetrics_Timeout(t *testing.T) {
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	s := open(t, server.URL(), func(o *redis.Options) { o.Registerer, o.Timeout = registry, 0 })
	server.Pause()
	defer server.Resume()
	if _, err := s.Admit(t.Context(), merchant()); err == nil {
		t.Error("admitted by a frozen Redis")
	}
	want := `
# HELP merchant_operator_redis_operation_errors_total Operations that Redis did not answer as it should, by cause: queue, timeout, connection, answer, replicas or cancelled.
# TYPE merchant_operator_redis_operation_errors_total counter
merchant_operator_redis_operation_errors_total{cause="timeout",operation="admit"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), operationErrors); err != nil {
		t.Error(err)
	}
}

// operationCounts returns how often each was done.
func operationCounts(t *testing.T, registry *prometheus.Registry) map[string]uint64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	counts := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "merchant_operator_redis_operation_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			counts[metric.GetLabel()[0].GetValue()] = metric.GetHistogram().GetSampleCount()
		}
	}
	return counts
}

func TestOperations_KeysOfAnotherType(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	asks := merchant()
	id := session.NewID(asks.MerchantID, false)
	key := merchantTag(asks.MerchantID) + "session:" + id.String()
	if err := c.Set(t.Context(), key, "text", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Session(t.Context(), asks, id)
	if !errors.Is(err, redis.ErrCorrupt) || errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("read: %v, want ErrCorrupt", err)
	}
	if strings.Contains(err.Error(), key) || strings.Contains(err.Error(), id.String()) {
		t.Errorf("the error names the key: %v", err)
	}
}

func TestOperations_ScriptFlushMeanwhile(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	c := client(t, server)
	asks := merchant()
	const callers, each = 8, 100
	var working sync.WaitGroup
	for caller := range callers {
		working.Go(func() {
			for i := range each {
				key, err := session.ParseIdempotencyKey(fmt.Sprintf("order-%d-%d", caller, i))
				if err != nil {
					t.Error(err)
					return
				}
				request := with(newSession(), func(n *store.NewSession) { n.Idempotency = key })
				if _, created, err := s.CreateSession(t.Context(), asks, request); err != nil || created.Replayed {
					t.Errorf("create: replayed %v, %v", created.Replayed, err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
			if err := c.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, pattern := range []string{"*:session:*", "*:idem:*"} {
		if n := len(c.Keys(t.Context(), pattern).Val()); n != callers*each {
			t.Errorf("%s: %d keys, want %d", pattern, n, callers*each)
		}
	}
}

// assertUnavailable runs every operation. Each must return that error, soon, and without any data of its request.
func assertUnavailable(t *testing.T, s *services) {
	t.Helper()
	asks := merchant()
	request := with(newSession(), func(n *store.NewSession) {
		n.Charge.CustomerEmail, n.Idempotency = "ada@example.com", idempotencyKey(t, "order-1001")
	})
	all := map[string]func(context.Context) error{
		"public read": func(ctx context.Context) error {
			_, _, err := s.PublicSession(ctx, payer(), session.NewID("aaaaaaaaaaaa", false))
			return err
		},
		"create with a key": func(ctx context.Context) error { _, _, err := s.CreateSession(ctx, asks, request); return err },
		"record a rotation": func(ctx context.Context) error {
			_, err := s.RecordRotation(ctx, newRotation(asks, 2), rotatedAt, feed.History{})
			return err
		},
		"write an override": func(ctx context.Context) error {
			return s.Keys.WriteOverride(ctx, keystate.Override{Ref: keyRef(asks), Order: published.Order{Revision: 1}, Accepted: []keystate.Accepted{{Digest: asks.Digest}}})
		},
	}
	for name, operation := range operations {
		all[name] = func(ctx context.Context) error { _, err := operation(ctx, s, asks); return err }
	}
	// A store that waits as its client would by default takes 5 s and more.
	const soon = 4 * time.Second
	for name, operation := range all {
		began := time.Now()
		err := operation(t.Context())
		if !errors.Is(err, redis.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
			continue
		}
		if took := time.Since(began); took > soon {
			t.Errorf("%s took %s with a timeout of 200 ms", name, took)
		}
		for _, secret := range []string{asks.KeyID, asks.MerchantID, asks.Digest.Hex(), "ada@example.com", request.Idempotency.Hash()} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error quotes the request: %v", name, err)
			}
		}
	}
}

func TestOperations_ServerRestarts(t *testing.T) {
	server := redistest.Start(t)
	s := impatient(t, server.URL())
	assertRecovers(t, s)
	server.Stop()
	assertUnavailable(t, s)
	if err := s.Check(t.Context()); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("Check: %v, want ErrUnavailable", err)
	}
	server.Start()
	assertRecovers(t, s)
}

func TestOperations_ServerHangs(t *testing.T) {
	server := redistest.Start(t)
	s := impatient(t, server.URL())
	asks := merchant()
	request := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	assertRecovers(t, s)
	server.Pause()
	assertUnavailable(t, s)
	if _, _, err := s.CreateSession(t.Context(), asks, request); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("create: %v, want ErrUnavailable", err)
	}
	server.Resume()
	assertRecovers(t, s)

	// The script may have been in the server's socket and run when it woke up, or not. Either way the
	// retry ends with exactly one session.
	patient := open(t, server.URL())
	first := mustCreate(t, patient, asks, request).Session
	if again := mustCreate(t, patient, asks, request); !again.Replayed || again.Session.ID != first.ID {
		t.Error("the retries made two sessions")
	}
	keys := client(t, server).Keys(t.Context(), merchantTag(asks.MerchantID)+"session:*").Val()
	own := 0
	for _, key := range keys {
		if owned(client(t, server), asks, key) {
			own++
		}
	}
	if own != 1 {
		t.Errorf("%d sessions, want one", own)
	}
}

// Redis rejects writes: it is full, or a replica is missing. Nothing may be half done.
func TestOperations_ServerRejectsWrites(t *testing.T) {
	for desc, setting := range map[string]struct{ name, reject, allow string }{
		"out of memory":        {"maxmemory", "1", "0"},
		"a replica is missing": {"min-replicas-to-write", "1", "0"},
	} {
		t.Run(desc, func(t *testing.T) {
			server := redistest.Start(t)
			s := open(t, server.URL())
			assertRecovers(t, s)
			c := client(t, server)
			before := c.DBSize(t.Context()).Val()
			if err := c.ConfigSet(t.Context(), setting.name, setting.reject).Err(); err != nil {
				t.Fatal(err)
			}
			assertUnavailable(t, s)
			if after := c.DBSize(t.Context()).Val(); after > before {
				t.Errorf("%d keys were written", after-before)
			}
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("Check: %v: it answers", err)
			}
			if err := c.ConfigSet(t.Context(), setting.name, setting.allow).Err(); err != nil {
				t.Fatal(err)
			}
			assertRecovers(t, s)
		})
	}
}

func TestOperations_ReadOnlyReplica(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	_, port, _ := strings.Cut(master.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	c := client(t, replica)
	eventually(t, "the replica follows", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	s := impatient(t, replica.URL())
	assertUnavailable(t, s)
	if n := c.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written to a replica", n)
	}
	// It takes over, as in a failover.
	if err := c.ReplicaOf(t.Context(), "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	assertRecovers(t, s)
}

// clusterOfOne answers as the one server of a Redis Cluster, and leaves scripts to the test.
func clusterOfOne(addr func() string, script func(words []string) string) func([]string) string {
	return func(words []string) string {
		switch strings.ToLower(words[0]) {
		case "evalsha", "eval":
			return script(words)
		case "cluster":
			host, port, _ := net.SplitHostPort(addr())
			return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$40\r\n%040d\r\n", len(host), host, port, 1)
		case "readonly", "ping":
			return "+OK\r\n"
		}
		return "-ERR unknown command\r\n"
	}
}

// A lost reply leaves open whether the script ran. Sent again by the client, it might
// run twice; so it is the caller who decides, with its Idempotency-Key.
func TestOperations_LostReplyIsNotRetried(t *testing.T) {
	for _, form := range []string{"redis://", "redis+cluster://"} {
		for desc, reply := range map[string]string{
			"the connection ends":   "",
			"the server is loading": "-LOADING Redis is loading the dataset in memory\r\n",
			"the cluster is down":   "-CLUSTERDOWN The cluster is down\r\n",
			"keys are on their way": "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
			"the master is away":    "-MASTERDOWN Link with MASTER is down\r\n",
			"clients are too many":  "-ERR max number of clients reached\r\n",
			"replicas are missing":  "-NOREPLICAS Not enough good replicas to write.\r\n",
		} {
			var server *fakeServer
			server = startFakeServer(t, clusterOfOne(func() string { return server.addr() }, func([]string) string { return reply }))
			s := open(t, form+server.addr())
			_, _, err := s.CreateSession(t.Context(), merchant(), newSession())
			if !errors.Is(err, redis.ErrUnavailable) {
				t.Errorf("%s %s: %v, want ErrUnavailable", form, desc, err)
			}
			if n := server.count("evalsha") + server.count("eval"); n != 1 {
				t.Errorf("%s %s: the script was sent %d times", form, desc, n)
			}
		}
	}
}

// A server of a cluster that redirects has run nothing. The client follows, but not forever.
func TestCluster_RedirectionLoop(t *testing.T) {
	for _, kind := range []string{"MOVED", "ASK"} {
		var server *fakeServer
		server = startFakeServer(t, clusterOfOne(func() string { return server.addr() }, func([]string) string {
			return fmt.Sprintf("-%s 1 %s\r\n", kind, server.addr())
		}))
		s := open(t, "redis+cluster://"+server.addr())
		_, err := s.Admit(t.Context(), merchant())
		if !errors.Is(err, redis.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", kind, err)
		}
		if n := server.count("evalsha"); n < 2 || n > 5 {
			t.Errorf("%s: followed %d times", kind, n)
		}
	}
}

// Redis quotes a command that it rejects, and with it keys and digests.
func TestErrors_DoNotQuoteRedis(t *testing.T) {
	asks := merchant()
	server := startFakeServer(t, func(words []string) string {
		return fmt.Sprintf("-ERR unknown command '%s', with args beginning with: '%s'\r\n", words[0], strings.Join(words[1:], "' '"))
	})
	s := open(t, "redis://"+server.addr())
	_, err := s.Admit(t.Context(), asks)
	if !errors.Is(err, redis.ErrUnavailable) {
		t.Fatalf("%v, want ErrUnavailable", err)
	}
	for _, secret := range []string{asks.KeyID, asks.MerchantID, asks.Digest.Hex()} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error quotes the command: %v", err)
		}
	}
}

func TestOperations_MalformedReply(t *testing.T) {
	for _, reply := range []string{
		"*0\r\n", "*1\r\n$2\r\nOK\r\n", "*1\r\n$7\r\nLIMITED\r\n", "*1\r\n:1\r\n", "*1\r\n$5\r\nHELLO\r\n",
		"*4\r\n$2\r\nOK\r\n$1\r\nx\r\n:1\r\n:1\r\n", "*4\r\n$2\r\nOK\r\n:1\r\n:1\r\n*0\r\n", "*1\r\n$-1\r\n",
	} {
		server := startFakeServer(t, func([]string) string { return reply })
		s := open(t, "redis://"+server.addr())
		for name, operation := range operations {
			if admitted, err := operation(t.Context(), s, merchant()); !errors.Is(err, redis.ErrCorrupt) || admitted != (admission.Admitted{}) {
				t.Errorf("%s: answer %q: %+v, %v; want ErrCorrupt", name, reply, admitted, err)
			}
		}
	}
}

// fakeServer speaks just enough of the Redis protocol to fail in ways that a real server cannot be configured to.
type fakeServer struct {
	listener net.Listener
	// answer returns the raw reply to a command; an empty one closes the connection, as if the reply
	// had been lost after the command ran.
	answer func(words []string) string

	mu       sync.Mutex
	received map[string]int
}

func startFakeServer(t *testing.T, answer func(words []string) string) *fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &fakeServer{listener: listener, answer: answer, received: map[string]int{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { server.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return server
}

func (f *fakeServer) addr() string { return f.listener.Addr().String() }

// count returns how often the command came.
func (f *fakeServer) count(command string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received[command]
}

func (f *fakeServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for {
		words, err := readCommand(reader)
		if err != nil {
			return
		}
		command := strings.ToLower(words[0])
		f.mu.Lock()
		f.received[command]++
		f.mu.Unlock()
		reply := "-ERR unknown command\r\n" // to HELLO, after which the client goes on as with an old server
		if command != "hello" {
			reply = f.answer(words)
		}
		if reply == "" {
			return
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

func readCommand(reader *bufio.Reader) ([]string, error) {
	n, err := readLength(reader, '*')
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		length, err := readLength(reader, '$')
		if err != nil {
			return nil, err
		}
		word := make([]byte, length+2) // and the line's end
		if _, err := io.ReadFull(reader, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:length])
	}
	return words, nil
}

func readLength(reader *bufio.Reader, kind byte) (int, error) {
	line, err := reader.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("the reply begins with %q, want %q", line[0], kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
