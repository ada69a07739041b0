package store_test

import (
	"crypto/sha1" // it is how Redis names scripts
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// Every command a script runs reads, or writes the key that follows its name.
var (
	reading = strings.Fields("time get mget exists type hget hmget hgetall lrange zcard zcount zrange zrangebyscore zrangebylex zrevrange zscore")
	writing = strings.Fields("set del hset hdel hincrby pexpire rpush ltrim zadd zrem zremrangebyscore")
)

// A Redis Cluster that is moving a slot refuses a script before its first write if one of its KEYS is not there. A key that is
// written without being declared is born a second time on the other server instead, and the move then drops one of the two.
func TestEveryScriptDeclaresWhatItWrites(t *testing.T) {
	server := redistest.Start(t)
	asks := merchant()
	s := outboxScene{open(t, server.URL()), server, client(t, server), asks, bucketTag(asks.MerchantID)}
	commands := monitored(t, server, func() { everyBranch(t, s) })

	operations := store.Operations()
	unseen := map[string]bool{}
	for _, operation := range operations {
		unseen[operation] = true
	}
	var operation string
	var keys []string
	for _, command := range commands {
		name, rest := strings.ToLower(command.words[0]), command.words[1:]
		switch {
		case !command.lua && (name == "eval" || name == "evalsha"):
			sha := rest[0]
			if name == "eval" {
				sum := sha1.Sum([]byte(rest[0]))
				sha = hex.EncodeToString(sum[:])
			}
			n, err := strconv.Atoi(rest[1])
			must(t, err)
			operation, keys = operations[sha], rest[2:2+n]
			delete(unseen, operation)
			for _, key := range keys {
				if !strings.HasPrefix(key, "{b") || strings.HasSuffix(key, ":") {
					t.Errorf("%s declares %q, which is no key", operation, key)
				}
			}
		case !command.lua || slices.Contains(reading, name):
		case !slices.Contains(writing, name):
			t.Errorf("%s runs %s: say whether that writes", operation, name)
		case !slices.Contains(keys, rest[0]):
			t.Errorf("%s writes %s (%s), and declares %v", operation, rest[0], name, keys)
		}
	}
	for operation := range unseen {
		t.Errorf("%s was not tried", operation)
	}
}

// No script is left out above.
func TestEveryScriptIsAmongTheOperations(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	var scripts int
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			scripts += strings.Count(string(source), " = newScript(")
		}
	}
	if n := len(store.Operations()); n != scripts {
		t.Errorf("%d scripts are tried, of %d", n, scripts)
	}
}

// everyBranch makes each script write all that it ever does.
func everyBranch(t *testing.T, s outboxScene) {
	t.Helper()
	ctx := t.Context()
	create := func(change ...func(*store.NewSession)) session.Session {
		wanted := newSession()
		for _, c := range change {
			c(&wanted)
		}
		return mustCreate(t, s.Store, s.asks, wanted).Session
	}
	all := func(n *store.NewSession) {
		n.TellCreated, n.Charge.CustomerEmail, n.Idempotency = true, "a@example.com", idempotencyKey(t, newID())
	}
	expired := func(change ...func(*store.NewSession)) session.ID {
		created := create(append(change, short)...)
		due(t, s.Store, created)
		return created.ID
	}
	admit := func(change func(*store.Admission)) {
		_, _ = s.Admit(ctx, with(s.asks, change)) // some are refused
	}

	admit(func(*store.Admission) {})
	admit(func(a *store.Admission) { a.KeyID = newID() }) // its last use is written
	admit(func(a *store.Admission) { a.Limit.Burst = 1 })
	must(t, second(s.AdmitRotation(ctx, s.asks, ratelimit.Policy{RequestsPerSecond: 1, Burst: 100})))
	key := store.KeyRef{MerchantID: s.asks.MerchantID, KeyID: newID()}
	must(t, s.WriteOverride(ctx, store.Override{KeyRef: key}))
	must(t, second(s.Overrides(ctx, key)))
	for generation := range int64(3) {
		must(t, second(s.RecordRotation(ctx, rotationOf(s.asks, generation), rotatedAt.Add(time.Duration(generation)))))
		must(t, second(s.RecordRotation(ctx, rotationOf(s.asks, generation), rotatedAt)))
	}

	create(all)
	create(func(n *store.NewSession) { n.TellCreated = true })
	repeated := with(newSession(), func(n *store.NewSession) { all(n); short(n) })
	original := mustCreate(t, s.Store, s.asks, repeated).Session
	mustCreate(t, s.Store, s.asks, repeated)
	due(t, s.Store, original)
	mustCreate(t, s.Store, s.asks, repeated)

	for _, read := range []func(session.ID){
		func(id session.ID) { _, _, err := s.Session(ctx, s.asks, id); must(t, err) },
		func(id session.ID) { _, _, err := s.PublicSession(ctx, payer(), id); must(t, err) },
		func(id session.ID) { _, _, _ = s.Cancel(ctx, s.asks, id) },
		func(id session.ID) { must(t, second(s.Settle(ctx, id, paid("a")))) }, // too late
		func(id session.ID) { must(t, second(s.Settle(ctx, id, failed("a")))) },
	} {
		read(create().ID)
		read(expired())
	}
	must(t, second(s.Settle(ctx, create().ID, of(7, paid("a")))))
	copied := open(t, s.server.URL(), copied(1, time.Millisecond)) // nobody follows
	for range 2 {
		_, _ = copied.Settle(ctx, original.ID, paid("b"))
	}

	expired()
	garbled := expired()
	must(t, s.redis.HSet(ctx, s.tag+"session:"+garbled.String(), "x", "nan").Err())
	must(t, s.redis.ZAdd(ctx, s.tag+"expiry", redis.Z{Score: 1, Member: expired().String()}, redis.Z{Score: 1, Member: create().ID.String()}).Err())
	must(t, s.redis.RPush(ctx, s.tag+"expiry:7", "{b99}:what is this").Err())
	must(t, s.redis.Set(ctx, s.tag+"expiry:8", "text", 0).Err())
	must(t, s.redis.ZAdd(ctx, s.tag+"expiry", redis.Z{Score: 1, Member: "7"}, redis.Z{Score: 1, Member: "8"}).Err())
	sweepAll(t, s.Store, s.bucket(), 2)

	must(t, second(s.Look(ctx)))
	must(t, second(s.Backlog(ctx, s.bucket())))
	for _, rest := range s.leaseFor(t, time.Hour, 1000) {
		must(t, s.DropEvent(ctx, rest))
	}
	must(t, s.redis.Del(ctx, s.tag+"event:"+s.event(t)).Err())
	must(t, s.redis.HSet(ctx, s.tag+"event:"+s.event(t), "x", "soon").Err())
	s.leaseFor(t, time.Hour, 100)
	s.fail(t, "here", nil)
	s.fail(t, "here", func(f *store.Failure) { f.Retry = -1 })
	s.event(t)
	must(t, s.EventDelivered(ctx, s.one(t)))
	s.event(t)
	must(t, s.DeferEvents(ctx, s.bucket(), store.Deferral{Lease: s.one(t)}))
	must(t, s.DropEvent(ctx, s.one(t)))
	s.fail(t, "here", gone)
	must(t, second(s.TroubledEndpoints(ctx, s.bucket())))
	must(t, s.EndpointTold(ctx, s.troubled(t)[0]))
	must(t, second(s.ResumeEndpoint(ctx, s.asks.MerchantID, "there")))
	must(t, s.EndpointTold(ctx, s.troubled(t)[0]))
	must(t, s.redis.ZAdd(ctx, s.tag+"troubled", redis.Z{Score: 1, Member: newID()}).Err())
	must(t, second(s.TroubledEndpoints(ctx, s.bucket())))
	letters := deadIDs(s.deadLetters(t, store.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
	must(t, second(s.Resend(ctx, letters...)))
}
