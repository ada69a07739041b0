package outbox_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestEveryScriptDeclaresWhatItWrites(t *testing.T) {
	s := newFixture(t)
	storetest.CheckDeclared(t, s.server, outbox.Scripts(), func() { everyBranch(t, s) })
}

// everyBranch makes each script write all that it ever does.
func everyBranch(t *testing.T, s fixture) {
	t.Helper()
	ctx := t.Context()
	for generation := range int64(3) {
		must(t, second(s.RecordRotation(ctx, storetest.Rotation(s.asks, generation), storetest.RotatedAt.Add(time.Duration(generation)))))
		must(t, second(s.RecordRotation(ctx, storetest.Rotation(s.asks, generation), storetest.RotatedAt)))
	}

	must(t, second(s.PendingWork(ctx)))
	must(t, second(s.Backlog(ctx, s.bucket())))
	for _, rest := range s.leaseFor(t, time.Hour, 1000) {
		must(t, s.Drop(ctx, rest))
	}
	must(t, s.redis.Del(ctx, s.tag+"event:"+s.event(t)).Err())
	must(t, s.redis.HSet(ctx, s.tag+"event:"+s.event(t), "x", "soon").Err())
	s.leaseFor(t, time.Hour, 100)
	s.fail(t, "here", nil)
	s.fail(t, "here", func(f *outbox.Failure) { f.Retry = -1 })
	s.event(t)
	must(t, s.Delivered(ctx, s.one(t)))
	s.event(t)
	must(t, s.Defer(ctx, s.bucket(), outbox.Deferral{Lease: s.one(t)}))
	must(t, s.Drop(ctx, s.one(t)))
	s.fail(t, "here", gone)
	must(t, second(s.UnhealthyEndpoints(ctx, s.bucket())))
	must(t, s.EndpointReported(ctx, s.unhealthy(t)[0]))
	must(t, second(s.ResumeEndpoint(ctx, s.asks.MerchantID, "there")))
	must(t, s.EndpointReported(ctx, s.unhealthy(t)[0]))
	must(t, s.redis.ZAdd(ctx, s.tag+"unhealthy", goredis.Z{Score: 1, Member: storetest.ID()}).Err())
	must(t, second(s.UnhealthyEndpoints(ctx, s.bucket())))
	letters := deadIDs(s.deadLetters(t, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
	must(t, second(s.Resend(ctx, letters...)))
}
