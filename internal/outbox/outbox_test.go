package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestOperations_RedisAway(t *testing.T) {
	s := newFixture(t)
	s.event(t)
	lease := s.one(t)
	s.server.Stop()
	ctx := t.Context()
	for name, err := range map[string]error{
		"lease":         second(s.Lease(ctx, s.bucket(), outbox.LeaseRequest{For: time.Hour, Limit: 1})),
		"deliver":       s.RecordDelivery(ctx, lease, outbox.Target{ID: "here"}),
		"fail":          second(s.RecordFailure(ctx, lease, outbox.Failure{})),
		"defer":         s.Defer(ctx, s.bucket(), outbox.Deferral{Lease: lease}),
		"dead letter":   s.DeadLetter(ctx, lease, outbox.Details{Reason: "dns"}),
		"list":          second(s.DeadLetters(ctx, outbox.DeadLetterFilter{})),
		"resend":        second(s.Resend(ctx, outbox.ResendRequest{IDs: []string{lease.Event.ID}})),
		"count":         second(s.Backlog(ctx, s.bucket())),
		"pending work":  second(s.PendingWork(ctx)),
		"reports":       second(s.PendingReports(ctx)),
		"heartbeat":     second(s.Heartbeat(ctx, s.bucket(), "a test", true)),
		"remove":        second(s.RemoveHolder(ctx, s.bucket(), "a test", "1")),
		"free":          second(s.FreeLeases(ctx, s.bucket(), "a test")),
		"forget holder": s.ForgetHolder(ctx, s.bucket(), "a test"),
		"refuse":        second(s.RecordRefusal(ctx, s.asks.MerchantID, outbox.Target{ID: "here"}, "URLRefused", "refused_scheme")),
		"resume":        second(s.ResumeEndpoint(ctx, s.asks.MerchantID, outbox.Target{ID: "here"})),
		"end refusal":   second(s.EndRefusal(ctx, outbox.EndpointState{MerchantID: s.asks.MerchantID})),
		"watched":       second(s.WatchedEndpoints(ctx, s.bucket())),
		"endpoints":     second(s.Endpoints(ctx, s.bucket(), s.asks.MerchantID)),
		"report":        s.RecordEndpointReport(ctx, outbox.EndpointState{MerchantID: s.asks.MerchantID}, "Healthy", true),
		"forget":        s.ForgetEndpoint(ctx, s.asks.MerchantID),
	} {
		if !errors.Is(err, redis.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
}

func TestScripts_DeclareTheirKeys(t *testing.T) {
	s := newFixture(t)
	storetest.CheckDeclared(t, s.server, func() { everyBranch(t, s) })
}

// everyBranch makes each script write all that it ever does.
func everyBranch(t *testing.T, s fixture) {
	t.Helper()
	ctx := t.Context()
	for generation := range int64(3) {
		must(t, second(s.RecordRotation(ctx, storetest.Rotation(s.asks, generation), storetest.RotatedAt.Add(time.Duration(generation)), feed.History{})))
		must(t, second(s.RecordRotation(ctx, storetest.Rotation(s.asks, generation), storetest.RotatedAt, feed.History{})))
	}

	must(t, second(s.Heartbeat(ctx, s.bucket(), "a test", true)))
	must(t, second(s.RemoveHolder(ctx, s.bucket(), "a test", "1")))
	must(t, second(s.PendingWork(ctx)))
	must(t, second(s.PendingReports(ctx)))
	must(t, second(s.Backlog(ctx, s.bucket())))
	s.leaseFor(t, time.Hour, 1000)
	must(t, second(s.FreeLeases(ctx, s.bucket(), "a test")))
	must(t, s.ForgetHolder(ctx, s.bucket(), "a test"))
	for _, rest := range s.leaseFor(t, time.Hour, 1000) {
		must(t, s.Drop(ctx, rest))
	}
	must(t, s.redis.Del(ctx, s.tag+"event:"+s.event(t)).Err())
	must(t, s.redis.HSet(ctx, s.tag+"event:"+s.event(t), "x", "soon").Err())
	s.leaseFor(t, time.Hour, 100)
	s.fail(t, "here", nil)
	s.fail(t, "here", func(f *outbox.Failure) { f.Retry = -1 })
	s.event(t)
	must(t, s.RecordDelivery(ctx, s.one(t), outbox.Target{ID: "here"}))
	s.event(t)
	must(t, s.Defer(ctx, s.bucket(), outbox.Deferral{Lease: s.one(t)}))
	must(t, s.Drop(ctx, s.one(t)))
	s.fail(t, "here", gone)
	var many []goredis.Z
	var ids []any
	for i := range outbox.MaxDeadLetters {
		ids = append(ids, fmt.Sprint("evt_", i))
		many = append(many, goredis.Z{Score: float64(time.Now().UnixMilli()), Member: ids[i]})
	}
	must(t, s.redis.ZAdd(ctx, s.tag+"dead:"+s.asks.MerchantID, many...).Err())
	s.event(t)
	must(t, s.DeadLetter(ctx, s.one(t), outbox.Details{Reason: "dns"})) // one too many
	must(t, s.redis.ZRem(ctx, s.tag+"dead:"+s.asks.MerchantID, ids...).Err())
	s.event(t)
	must(t, s.DeadLetter(ctx, s.one(t), outbox.Details{Reason: "dns"}))
	must(t, s.RecordEndpointReport(ctx, s.state(t), "EndpointGone", false))
	must(t, s.RecordEndpointReport(ctx, outbox.EndpointState{MerchantID: s.asks.MerchantID}, "Healthy", true)) // late
	must(t, second(s.ResumeEndpoint(ctx, s.asks.MerchantID, outbox.Target{ID: "there"})))
	must(t, second(s.RecordRefusal(ctx, s.asks.MerchantID, outbox.Target{ID: "elsewhere"}, "URLRefused", "refused_scheme")))
	must(t, second(s.EndRefusal(ctx, s.state(t))))
	s.event(t)
	must(t, s.RecordDelivery(ctx, s.one(t), outbox.Target{ID: "there"}))
	must(t, s.UnwatchEndpoint(ctx, s.state(t)))
	must(t, second(s.WatchedEndpoints(ctx, s.bucket())))
	must(t, s.ForgetEndpoint(ctx, s.asks.MerchantID))
	inTest := with(s, func(f *fixture) { f.asks.TestMode = true })
	inTest.fail(t, "here", nil)
	test := feed.NewWebhookTest(s.asks.MerchantID, "Acme Coffee", "1", storetest.RotatedAt)
	must(t, second(s.RecordTest(ctx, test)))
	must(t, second(s.RecordTest(ctx, test)))
	must(t, second(s.SendWebhookTest(ctx, test)))
	must(t, s.AnswerWebhookTest(ctx, test, "target", outbox.Attempt{Reason: "delivered", Answer: "204"}))
	must(t, second(s.Attempts(ctx, s.asks.MerchantID, time.Now())))
	for _, inMode := range []fixture{s, inTest} {
		inMode.event(t)
		inMode.event(t)
		must(t, endExcess(t, inMode, 1))
	}
	letters := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
	must(t, second(s.Resend(ctx, outbox.ResendRequest{IDs: letters})))
}

// outboxOperation is given a lease.
type outboxOperation struct {
	name string
	do   func(context.Context, fixture, outbox.Lease) error
}

// outboxOperations are one of each kind, in an order in which all of them have something to do.
var outboxOperations = []outboxOperation{
	{"fail", func(ctx context.Context, s fixture, lease outbox.Lease) error {
		return second(s.RecordFailure(ctx, lease, outbox.Failure{Details: outbox.Details{Reason: "gone"}, Gone: true, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour}))
	}},
	{"watched", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return second(s.WatchedEndpoints(ctx, s.bucket()))
	}},
	{"report", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return s.RecordEndpointReport(ctx, outbox.EndpointState{MerchantID: s.asks.MerchantID}, "Healthy", true)
	}},
	{"resume", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return second(s.ResumeEndpoint(ctx, s.asks.MerchantID, outbox.Target{ID: "there"}))
	}},
	{"defer", func(ctx context.Context, s fixture, lease outbox.Lease) error {
		return s.Defer(ctx, s.bucket(), outbox.Deferral{Lease: lease})
	}},
	{"dead letter", func(ctx context.Context, s fixture, lease outbox.Lease) error {
		return s.DeadLetter(ctx, lease, outbox.Details{Reason: "dns"})
	}},
	{"deliver", func(ctx context.Context, s fixture, lease outbox.Lease) error {
		return s.RecordDelivery(ctx, lease, outbox.Target{ID: "here"})
	}},
	{"drop", func(ctx context.Context, s fixture, lease outbox.Lease) error { return s.Drop(ctx, lease) }},
	{"list", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return second(s.DeadLetters(ctx, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
	}},
	{"count", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return second(s.Backlog(ctx, s.bucket()))
	}},
}

// A cluster rejects a script whose keys are of more than one slot.
func TestOperations_Cluster(t *testing.T) {
	servers := storetest.StartCluster(t)
	s := fixture{Services: storetest.New(t, "redis+cluster://"+servers[0].Addr()), server: servers[0]}
	for i := range 8 {
		s.asks = storetest.MerchantIn(session.Bucket(8 * i))
		s.tag = storetest.Tag(s.asks.MerchantID)
		for _, operation := range outboxOperations {
			s.event(t)
			if err := operation.do(t.Context(), s, s.one(t)); err != nil {
				t.Errorf("bucket %d: %s: %v", s.bucket(), operation.name, err)
			}
			for _, rest := range s.leaseFor(t, time.Hour, 100) {
				must(t, s.Drop(t.Context(), rest))
			}
		}
	}
	letters, err := s.DeadLetters(t.Context(), outbox.DeadLetterFilter{})
	must(t, err)
	dead := deadLetterIDs(letters)
	if len(dead) != 16 {
		t.Errorf("%d dead letters, want 16", len(dead))
	}
	if sent, err := s.Resend(t.Context(), outbox.ResendRequest{IDs: dead}); err != nil || sent.Sent != 16 {
		t.Errorf("sent %+v again: %v", sent, err)
	}
}

func TestOperations_OneCommand(t *testing.T) {
	server := redistest.Start(t)
	asks := storetest.Merchant()
	services := storetest.New(t, server.URL(), func(o *redis.Options) { o.PoolSize = 1 })
	s := fixture{services, server, storetest.Inspect(t, server), asks, storetest.Tag(asks.MerchantID)}
	for round := range 2 { // the first time the server gets to know the scripts
		for _, operation := range outboxOperations {
			s.event(t)
			lease := s.one(t)
			commands := storetest.ClientCommands(t, server, func() { must(t, operation.do(t.Context(), s, lease)) })
			if round == 1 && !slices.Equal(commands, []string{"evalsha"}) {
				t.Errorf("%s: %v, want one evalsha", operation.name, commands)
			}
			must(t, s.Defer(t.Context(), s.bucket(), outbox.Deferral{Lease: lease}))
			for _, rest := range s.leaseFor(t, time.Hour, 100) {
				must(t, s.Drop(t.Context(), rest))
			}
		}
	}
}

// movingSlot moves keys of a merchant's bucket to another server, and back.
type movingSlot struct {
	from, to *goredis.Client
	slot     int
}

func newMovingSlot(t *testing.T, servers []*redistest.Server, tag string) movingSlot {
	t.Helper()
	slot := int(storetest.Inspect(t, servers[0]).ClusterKeySlot(t.Context(), tag).Val())
	owner := slot * len(servers) / storetest.Slots
	return movingSlot{storetest.Inspect(t, servers[owner]), storetest.Inspect(t, servers[(owner+1)%len(servers)]), slot}
}

func (m movingSlot) set(t *testing.T, c *goredis.Client, state ...any) {
	t.Helper()
	must(t, c.Do(t.Context(), append([]any{"CLUSTER", "SETSLOT", m.slot}, state...)...).Err())
}

func migrate(t *testing.T, from, to *goredis.Client, keys []string) {
	t.Helper()
	if len(keys) == 0 {
		return
	}
	host, port, err := net.SplitHostPort(to.Options().Addr)
	must(t, err)
	command := []any{"MIGRATE", host, port, "", 0, storetest.Timeout.Milliseconds(), "KEYS"}
	for _, key := range keys {
		command = append(command, key)
	}
	if err := from.Do(t.Context(), command...).Err(); err != nil {
		t.Fatalf("move %v, which must not be on both servers: %v", keys, err)
	}
}

// during runs do while the slot moves and these keys have arrived, and then takes all of them back.
func (m movingSlot) during(t *testing.T, moved []string, do func()) {
	t.Helper()
	m.set(t, m.to, "IMPORTING", m.from.Do(t.Context(), "CLUSTER", "MYID").Val())
	m.set(t, m.from, "MIGRATING", m.to.Do(t.Context(), "CLUSTER", "MYID").Val())
	migrate(t, m.from, m.to, moved)
	do()
	m.set(t, m.from, "STABLE")
	migrate(t, m.to, m.from, m.to.ClusterGetKeysInSlot(t.Context(), m.slot, 1000).Val())
	m.set(t, m.to, "STABLE")
}

// A slot moves key by key, and each operation may come at any point of that, with the last event of a bucket. It succeeds or fails; either way
// the event is in the queue, or it is a dead letter, or it has ended.
func TestOperations_SlotMovesWithTheLastEvent(t *testing.T) {
	servers := storetest.StartCluster(t)
	s := fixture{Services: storetest.New(t, "redis+cluster://"+servers[0].Addr()), server: servers[0], asks: storetest.MerchantIn(7)}
	s.tag = storetest.Tag(s.asks.MerchantID)
	slot := newMovingSlot(t, servers, s.tag)
	s.redis = slot.from

	operations := append(slices.Clone(outboxOperations), []outboxOperation{
		{"lease", func(ctx context.Context, s fixture, _ outbox.Lease) error {
			return second(s.Lease(ctx, s.bucket(), outbox.LeaseRequest{For: time.Millisecond, Limit: 10}))
		}},
		{"retry", func(ctx context.Context, s fixture, lease outbox.Lease) error {
			return second(s.RecordFailure(ctx, lease, outbox.Failure{Details: outbox.Details{Reason: "timeout"}, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour}))
		}},
		{"give up", func(ctx context.Context, s fixture, lease outbox.Lease) error {
			return second(s.RecordFailure(ctx, lease, outbox.Failure{Details: outbox.Details{Reason: "timeout"}, Retry: -1, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour}))
		}},
	}...)
	for _, operation := range operations {
		t.Run(operation.name, func(t *testing.T) {
			done := 0
			const states = 1 << 5
			for state := range states {
				must(t, s.redis.FlushAll(t.Context()).Err())
				dead := s.deadLetter(t, "dns")
				s.deliver(t, "here") // the endpoint is known, and watched
				id := s.event(t)
				lease := s.leaseFor(t, time.Millisecond, 10)[0]
				await.Until(t, storetest.Timeout, "the lease is over", func() bool {
					in, there := s.dueIn(t, id)
					return there && in < 0
				})
				var moved []string
				for i, keys := range [][]string{
					{"queue"}, {"due"}, {"event:" + id}, {"dead", "dead:" + s.asks.MerchantID}, {"endpoint:" + s.asks.MerchantID, "watched"},
				} {
					for _, key := range keys {
						if state&(1<<i) != 0 {
							moved = append(moved, s.tag+key)
						}
					}
				}
				slot.during(t, moved, func() {
					if operation.do(t.Context(), s, lease) == nil {
						done++
					}
				})
				s.checkKept(t, moved, id)
				s.checkKept(t, moved, dead)
			}
			if done == 0 {
				t.Error("it was never done while the slot moved")
			}
		})
	}
}

// checkKept checks that an event whose record is there is in the queue once, or a dead letter, and that its merchant has its turn.
func (s fixture) checkKept(t *testing.T, moved []string, id string) {
	t.Helper()
	ctx := t.Context()
	queued := s.redis.ZRange(ctx, s.tag+"queue", 0, -1).Val()
	inQueue := len(slices.DeleteFunc(slices.Clone(queued), func(member string) bool { return !strings.Contains(member, id) }))
	recorded := s.redis.Exists(ctx, s.tag+"event:"+id).Val() == 1
	inBucket := s.redis.ZScore(ctx, s.tag+"dead", id).Err() == nil
	inMerchant := s.redis.ZScore(ctx, s.tag+"dead:"+s.asks.MerchantID, id).Err() == nil
	kept := inQueue == 1 && !inBucket || inQueue == 0 && inBucket
	if recorded != kept || inBucket != inMerchant {
		t.Errorf("moved %v: %s is recorded: %t, %d times in the queue, a dead letter of the bucket: %t, of the merchant: %t",
			moved, id, recorded, inQueue, inBucket, inMerchant)
	}
	if turn := s.redis.ZScore(ctx, s.tag+"due", s.asks.MerchantID).Err() == nil; len(queued) > 0 && !turn {
		t.Errorf("moved %v: %d events in the queue, and the merchant has no turn", moved, len(queued))
	}
}
