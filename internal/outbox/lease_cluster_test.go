package outbox_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// outboxOperations are one of each kind, in an order in which all of them have something to do. Each is given a lease.
var outboxOperations = []struct {
	name string
	do   func(context.Context, fixture, outbox.Lease) error
}{
	{"fail", func(ctx context.Context, s fixture, lease outbox.Lease) error {
		return second(s.Failed(ctx, lease, outbox.Failure{Details: outbox.Details{Reason: "gone"}, Gone: true, Target: "here", FailingLimit: time.Hour}))
	}},
	{"watched", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return second(s.WatchedEndpoints(ctx, s.bucket()))
	}},
	{"report", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return s.EndpointReported(ctx, outbox.EndpointState{MerchantID: s.asks.MerchantID}, "Healthy", true)
	}},
	{"resume", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return second(s.ResumeEndpoint(ctx, s.asks.MerchantID, "there"))
	}},
	{"put off", func(ctx context.Context, s fixture, lease outbox.Lease) error {
		return s.Defer(ctx, s.bucket(), outbox.Deferral{Lease: lease})
	}},
	{"dead letter", func(ctx context.Context, s fixture, lease outbox.Lease) error {
		return s.DeadLetter(ctx, lease, outbox.Details{Reason: "dns"})
	}},
	{"deliver", func(ctx context.Context, s fixture, lease outbox.Lease) error { return s.Delivered(ctx, lease, "here") }},
	{"drop", func(ctx context.Context, s fixture, lease outbox.Lease) error { return s.Drop(ctx, lease) }},
	{"list", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return second(s.DeadLetters(ctx, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
	}},
	{"count", func(ctx context.Context, s fixture, _ outbox.Lease) error {
		return second(s.Backlog(ctx, s.bucket()))
	}},
}

// A real cluster refuses a script whose keys are of more than one slot.
func TestTheOutboxInARedisCluster(t *testing.T) {
	servers := storetest.StartCluster(t)
	s := fixture{Services: storetest.New(t, "redis+cluster://"+servers[0].Addr()), server: servers[0]}
	for i := range 8 {
		s.asks = storetest.MerchantOf(session.Bucket(8 * i))
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
	dead := deadIDs(letters)
	if len(dead) != 16 {
		t.Errorf("%d dead letters, want 16", len(dead))
	}
	if sent, err := s.Resend(t.Context(), outbox.ResendRequest{IDs: dead}); err != nil || sent.Sent != 16 {
		t.Errorf("sent %+v again: %v", sent, err)
	}
}

func TestEveryStepOfADeliveryIsOneCommand(t *testing.T) {
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
