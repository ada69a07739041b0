package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// outboxOperations are one of each kind, in an order in which all of them have something to do.
var outboxOperations = []struct {
	name string
	do   func(*testing.T, outboxScene) error
}{
	{"fail", func(t *testing.T, s outboxScene) error {
		return second(s.EventFailed(t.Context(), s.one(t), store.Failure{Reason: "gone", Gone: true, Target: "here", FailingLimit: time.Hour}))
	}},
	{"troubled", func(t *testing.T, s outboxScene) error {
		return second(s.TroubledEndpoints(t.Context(), s.bucket()))
	}},
	{"told", func(t *testing.T, s outboxScene) error {
		return s.EndpointTold(t.Context(), store.EndpointState{MerchantID: s.asks.MerchantID})
	}},
	{"resume", func(t *testing.T, s outboxScene) error {
		return second(s.ResumeEndpoint(t.Context(), s.asks.MerchantID, "there"))
	}},
	{"put off", func(t *testing.T, s outboxScene) error {
		return s.DeferEvents(t.Context(), s.bucket(), store.Deferral{Lease: s.one(t)})
	}},
	{"bury", func(t *testing.T, s outboxScene) error { return s.BuryEvent(t.Context(), s.one(t), "dns") }},
	{"deliver", func(t *testing.T, s outboxScene) error { return s.EventDelivered(t.Context(), s.one(t)) }},
	{"drop", func(t *testing.T, s outboxScene) error { return s.DropEvent(t.Context(), s.one(t)) }},
	{"list", func(t *testing.T, s outboxScene) error {
		return second(s.DeadLetters(t.Context(), store.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
	}},
	{"count", func(t *testing.T, s outboxScene) error {
		return second(s.Backlog(t.Context(), s.bucket()))
	}},
	{"overdue", func(t *testing.T, s outboxScene) error {
		return second(s.Overdue(t.Context(), s.bucket()))
	}},
}

// A real cluster refuses a script whose keys are of more than one slot.
func TestTheOutboxInARedisCluster(t *testing.T) {
	servers := startCluster(t)
	s := outboxScene{Store: open(t, "redis+cluster://"+servers[0].Addr()), server: servers[0]}
	for i := range 8 {
		s.asks = merchantOf(session.Bucket(8 * i))
		s.tag = bucketTag(s.asks.MerchantID)
		for _, operation := range outboxOperations {
			s.event(t)
			if err := operation.do(t, s); err != nil {
				t.Errorf("bucket %d: %s: %v", s.bucket(), operation.name, err)
			}
			for _, rest := range s.leaseFor(t, time.Hour, 100) {
				must(t, s.DropEvent(t.Context(), rest))
			}
		}
	}
	letters, err := s.DeadLetters(t.Context(), store.DeadLetterFilter{})
	must(t, err)
	buried := deadIDs(letters)
	if len(buried) != 16 {
		t.Errorf("%d dead letters, want 16", len(buried))
	}
	if sent, err := s.Resend(t.Context(), buried...); err != nil || sent != 16 {
		t.Errorf("sent %d again: %v", sent, err)
	}
}

func TestEveryStepOfADeliveryIsOneCommand(t *testing.T) {
	server := redistest.Start(t)
	asks := merchant()
	s := outboxScene{open(t, server.URL(), func(o *store.Options) { o.PoolSize = 1 }), server, client(t, server), asks, bucketTag(asks.MerchantID)}
	for range 2 { // the first time the server gets to know the scripts
		for _, operation := range outboxOperations {
			s.event(t)
			lease := s.one(t)
			must(t, s.DeferEvents(t.Context(), s.bucket(), store.Deferral{Lease: lease}))
			commands := clientCommands(t, server, func() { must(t, operation.do(t, s)) })
			for _, rest := range s.leaseFor(t, time.Hour, 100) {
				must(t, s.DropEvent(t.Context(), rest))
			}
			commands = slices.DeleteFunc(commands, func(c string) bool { return c == "eval" })
			if len(commands) > 2 || slices.ContainsFunc(commands, func(c string) bool { return c != "evalsha" }) {
				t.Errorf("%s, with the lease it begins with: %v", operation.name, commands)
			}
		}
	}
}
