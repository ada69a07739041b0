package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// impatient is a store with a short timeout, for servers that do not answer.
func impatient(t testing.TB, url string) *services {
	t.Helper()
	return open(t, url, func(o *redis.Options) { o.Timeout = 200 * time.Millisecond })
}

// assertUnavailable runs every operation. Each must say so, soon, and without a word about whom it was for.
func assertUnavailable(t *testing.T, s *services) {
	t.Helper()
	asks := merchant()
	wanted := with(newSession(), func(n *store.NewSession) {
		n.Charge.CustomerEmail, n.Idempotency = "ada@example.com", idempotencyKey(t, "order-1001")
	})
	all := map[string]func(context.Context) error{
		"public read": func(ctx context.Context) error {
			_, _, err := s.PublicSession(ctx, payer(), session.NewID("aaaaaaaaaaaa", false))
			return err
		},
		"create with a key": func(ctx context.Context) error { _, _, err := s.CreateSession(ctx, asks, wanted); return err },
		"record a rotation": func(ctx context.Context) error {
			_, err := s.RecordRotation(ctx, rotationOf(asks, 2), rotatedAt, feed.History{})
			return err
		},
		"write an override": func(ctx context.Context) error {
			return s.WriteOverride(ctx, store.Override{KeyRef: store.KeyRef{MerchantID: asks.MerchantID, KeyID: asks.KeyID}, Order: published.Order{Revision: 1}, Accepted: []store.Accepted{{Digest: asks.Digest}}})
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
		for _, secret := range []string{asks.KeyID, asks.MerchantID, asks.Digest.Hex(), "ada@example.com", wanted.Idempotency.Hash()} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error tells whom it was for: %v", name, err)
			}
		}
	}
}

// assertRecovers waits until the same store works again.
func assertRecovers(t *testing.T, s *services) {
	t.Helper()
	for name, operation := range operations {
		eventually(t, name+" works again", func() bool {
			_, err := operation(t.Context(), s, merchant())
			return err == nil
		})
	}
}

func TestAServerThatIsStoppedAndStartedAgain(t *testing.T) {
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

func TestAServerThatDoesNotAnswer(t *testing.T) {
	server := redistest.Start(t)
	s := impatient(t, server.URL())
	asks := merchant()
	wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	assertRecovers(t, s)
	server.Pause()
	assertUnavailable(t, s)
	if _, _, err := s.CreateSession(t.Context(), asks, wanted); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("create: %v, want ErrUnavailable", err)
	}
	server.Resume()
	assertRecovers(t, s)

	// The script may have been in the server's socket and run when it woke up, or not. Either way the
	// retry ends with exactly one session.
	patient := open(t, server.URL())
	first := mustCreate(t, patient, asks, wanted).Session
	if again := mustCreate(t, patient, asks, wanted); !again.Replayed || again.Session.ID != first.ID {
		t.Error("the retries made two sessions")
	}
	keys := client(t, server).Keys(t.Context(), bucketTag(asks.MerchantID)+"session:*").Val()
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

// Redis refuses to grow, to write, or to write without a replica. Nothing may be half done.
func TestAServerThatRefusesToWrite(t *testing.T) {
	for desc, setting := range map[string]struct{ name, refuse, allow string }{
		"out of memory":        {"maxmemory", "1", "0"},
		"a replica is missing": {"min-replicas-to-write", "1", "0"},
	} {
		t.Run(desc, func(t *testing.T) {
			server := redistest.Start(t)
			s := impatient(t, server.URL())
			assertRecovers(t, s)
			c := client(t, server)
			before := c.DBSize(t.Context()).Val()
			if err := c.ConfigSet(t.Context(), setting.name, setting.refuse).Err(); err != nil {
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

func TestAReadOnlyReplica(t *testing.T) {
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
