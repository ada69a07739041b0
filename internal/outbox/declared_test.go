package outbox_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/feed"
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
		must(t, second(s.RecordRotation(ctx, storetest.Rotation(s.asks, generation), storetest.RotatedAt.Add(time.Duration(generation)), feed.History{})))
		must(t, second(s.RecordRotation(ctx, storetest.Rotation(s.asks, generation), storetest.RotatedAt, feed.History{})))
	}

	must(t, second(s.PendingWork(ctx)))
	must(t, second(s.PendingReports(ctx)))
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
	must(t, s.Delivered(ctx, s.one(t), "here"))
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
	must(t, s.EndpointReported(ctx, s.state(t), "EndpointGone", false))
	must(t, s.EndpointReported(ctx, outbox.EndpointState{MerchantID: s.asks.MerchantID}, "Healthy", true)) // late
	must(t, second(s.ResumeEndpoint(ctx, s.asks.MerchantID, "there")))
	s.event(t)
	must(t, s.Delivered(ctx, s.one(t), "there"))
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
	letters := deadIDs(s.deadLetters(t, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
	must(t, second(s.Resend(ctx, outbox.ResendRequest{IDs: letters})))
}
