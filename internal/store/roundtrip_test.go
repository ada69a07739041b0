package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

func TestEveryOperationIsOneCommand(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL(), func(o *redis.Options) { o.PoolSize = 1 })
	asks := merchant()
	wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	id := mustCreate(t, s, asks, wanted).Session.ID
	cancelled := mustCreate(t, s, asks, newSession()).Session.ID
	generation := int64(1)

	all := map[string]func(context.Context) error{
		"admit":           func(ctx context.Context) error { _, err := s.Admit(ctx, asks); return err },
		"create":          func(ctx context.Context) error { _, _, err := s.CreateSession(ctx, asks, newSession()); return err },
		"replayed create": func(ctx context.Context) error { _, _, err := s.CreateSession(ctx, asks, wanted); return err },
		"merchant's read": func(ctx context.Context) error { _, _, err := s.Session(ctx, asks, id); return err },
		"read the feed":   func(ctx context.Context) error { _, _, err := s.Feed(ctx, asks, feed.Cursor{}, 10); return err },
		"list what ended": func(ctx context.Context) error {
			_, _, err := s.AdmitEnded(ctx, asks, store.EndedQuery{Limit: 10})
			return err
		},
		"list an order": func(ctx context.Context) error { _, _, err := s.AdmitOrderSessions(ctx, asks, "1001"); return err },
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
		"create and tell": func(ctx context.Context) error {
			_, _, err := s.CreateSession(ctx, asks, with(newSession(), func(n *store.NewSession) { n.EmitCreated = true }))
			return err
		},
		"sweep of nothing": func(ctx context.Context) error { _, err := sweep(ctx, s.Store, id.Bucket(), 10); return err },
		"record a rotation": func(ctx context.Context) error {
			generation++
			_, err := s.RecordRotation(ctx, rotationOf(asks, generation), rotatedAt, feed.History{})
			return err
		},
		"write an override": func(ctx context.Context) error {
			return s.WriteOverride(ctx, store.Override{KeyRef: store.KeyRef{MerchantID: asks.MerchantID, KeyID: asks.KeyID}, Order: published.Order{Revision: 1}, Accepted: []store.Accepted{{Digest: asks.Digest}}})
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

func TestAServerThatForgotItsScriptsIsTaughtAgain(t *testing.T) {
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
