package store_test

import (
	"crypto/rand"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/leaks"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// shared is the redis-server of every test that does not harm its server. Tests keep apart by using
// merchants of their own.
var shared *redistest.Server

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	server, closeServer, err := redistest.New()
	if err != nil {
		panic(err)
	}
	shared = server
	leaks.Run(m, func() error { closeServer(); return nil })
}

// patience is how long a test waits for what must come true. The machine may be busy.
const patience = 20 * time.Second

// open returns a store with a timeout that no busy machine exceeds, unless the test sets one.
func open(t testing.TB, url string, change ...func(*store.Options)) *store.Store {
	t.Helper()
	options := store.Options{URL: url, Timeout: patience}
	for _, c := range change {
		c(&options)
	}
	opened, err := store.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return opened
}

// client is for looking at what is in Redis.
func client(t testing.TB, server *redistest.Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: patience, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// merchant returns an admission that is admitted: a fresh merchant with a live key and a limit no
// test reaches by accident.
func merchant() store.Admission {
	return store.Admission{
		MerchantID: newID(),
		KeyID:      newID(),
		Order:      published.Order{Revision: 3},
		Digest:     newDigest(),
		Live:       true,
		Limit:      ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000},
	}
}

func newID() string            { return strings.ToLower(rand.Text())[:12] }
func newDigest() apikey.Digest { return apikey.DigestOf(rand.Text()) }

func newSession() store.NewSession {
	return store.NewSession{
		MerchantName: "Acme Coffee",
		Charge:       session.Charge{AmountCents: 1250, OrderRef: "1001"},
		Lifetime:     15 * time.Minute,
	}
}

func idempotencyKey(t testing.TB, s string) session.IdempotencyKey {
	t.Helper()
	key, err := session.ParseIdempotencyKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// with returns a changed copy.
func with[T any](value T, change func(*T)) T {
	change(&value)
	return value
}

func mustCreate(t testing.TB, s *store.Store, admission store.Admission, wanted store.NewSession) store.Created {
	t.Helper()
	_, created, err := s.CreateSession(t.Context(), admission, wanted)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	await.Until(t, patience, what, condition)
}
