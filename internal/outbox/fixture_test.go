package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// shared is the redis-server of every test that does not harm its server. Tests keep apart by using
// merchants of their own.
var shared *redistest.Server

func TestMain(m *testing.M) { redistest.Main(m, func(s *redistest.Server) { shared = s }) }

var must = storetest.Must

// sameSession compares sessions.
var sameSession = cmp.AllowUnexported(session.ID{})

// with returns a changed copy.
func with[T any](value T, change func(*T)) T {
	change(&value)
	return value
}

// fixture is a Redis of its own, so that only its own events come due, and one merchant.
type fixture struct {
	*storetest.Services

	server *redistest.Server
	redis  *goredis.Client
	asks   admission.Request
	tag    string
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	server := redistest.Start(t)
	asks := storetest.Merchant()
	return fixture{storetest.New(t, server.URL()), server, storetest.Inspect(t, server), asks, storetest.Tag(asks.MerchantID)}
}

func (s fixture) bucket() session.Bucket { return session.MerchantBucket(s.asks.MerchantID) }

// inTestMode is the same merchant with a test key.
func (s fixture) inTestMode() fixture {
	s.asks.TestMode = true
	return s
}

// event cancels a new session and returns the id of the event that reports it.
func (s fixture) event(t *testing.T) string {
	t.Helper()
	id := storetest.MustCreate(t, s.Services, s.asks, storetest.NewSession()).Session.ID
	if _, _, err := s.Cancel(t.Context(), s.asks, id); err != nil {
		t.Fatal(err)
	}
	return "evt_" + id.String()[len("ps_"):] + "_ended"
}

func (s fixture) leaseFor(t *testing.T, long time.Duration, limit int) []outbox.Lease {
	t.Helper()
	leased, err := s.Lease(t.Context(), s.bucket(), outbox.LeaseRequest{HolderIdentity: "a test", For: long, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	if leased.More != (len(leased.Leases) == limit) {
		t.Errorf("%d events, of which there are more: %t", len(leased.Leases), leased.More)
	}
	return leased.Leases
}

// one leases the one event that is due.
func (s fixture) one(t *testing.T) outbox.Lease {
	t.Helper()
	leases := s.leaseFor(t, time.Hour, 10)
	if len(leases) != 1 {
		t.Fatalf("%d events are due, want 1", len(leases))
	}
	return leases[0]
}

// deliver delivers a new event of the merchant to the target.
func (s fixture) deliver(t *testing.T, target string) {
	t.Helper()
	s.event(t)
	must(t, s.RecordDelivery(t.Context(), s.one(t), outbox.Target{ID: target}))
}

// fail records a failed attempt to deliver a new event of the merchant to the target.
func (s fixture) fail(t *testing.T, target string, change func(*outbox.Failure)) outbox.Failed {
	t.Helper()
	id := s.event(t)
	failure := outbox.Failure{Details: outbox.Details{Reason: "timeout", Answer: "timeout"}, Health: "Timeout", Retry: time.Hour, Target: outbox.Target{ID: target}, FailingLimit: 120 * time.Hour}
	if change != nil {
		change(&failure)
	}
	lease := s.one(t)
	if lease.Event.ID != id {
		t.Fatalf("leased %s, want %s", lease.Event.ID, id)
	}
	failed, err := s.RecordFailure(t.Context(), lease, failure)
	must(t, err)
	return failed
}

func gone(f *outbox.Failure) { f.Gone, f.Permanent = true, true }

func permanent(f *outbox.Failure) { f.Permanent, f.Health, f.Answer = true, "Rejected", "401" }

// deadLetter makes a new event of the merchant a dead letter.
func (s fixture) deadLetter(t *testing.T, reason string) string {
	t.Helper()
	s.event(t)
	lease := s.one(t)
	must(t, s.DeadLetter(t.Context(), lease, outbox.Details{Reason: reason}))
	return lease.Event.ID
}

// dueIn is the time until an event is due; absent: it never is.
func (s fixture) dueIn(t *testing.T, id string) (in time.Duration, there bool) {
	t.Helper()
	_, at, there := storetest.Queued(t, s.redis, s.tag, id)
	return at.Sub(s.redis.Time(t.Context()).Val()), there
}

// dueAt sets the time of an event, and of its merchant's turn.
func dueAt(t testing.TB, c *goredis.Client, tag, id string, at time.Time) {
	t.Helper()
	member, _, there := storetest.Queued(t, c, tag, id)
	if !there {
		t.Fatal("not in the queue:", id)
	}
	words := strings.Split(member, ":")
	words[1] = fmt.Sprintf("%013d", at.UnixMilli())
	must(t, c.ZRem(t.Context(), tag+"queue", member).Err())
	must(t, c.ZAdd(t.Context(), tag+"queue", goredis.Z{Member: strings.Join(words, ":")}).Err())
	must(t, c.ZAdd(t.Context(), tag+"due", goredis.Z{Score: float64(at.UnixMilli()), Member: words[0]}).Err())
}

// hasten makes an event due now.
func (s fixture) hasten(t *testing.T, id string) {
	t.Helper()
	dueAt(t, s.redis, s.tag, id, time.UnixMilli(1))
}

// remains reports what Redis holds of an event.
func (s fixture) remains(t *testing.T, id string) (hash, due, dead bool) {
	t.Helper()
	ctx := t.Context()
	_, due = s.dueIn(t, id)
	return s.redis.Exists(ctx, s.tag+"event:"+id).Val() == 1, due, s.redis.ZScore(ctx, s.tag+"dead", id).Err() == nil
}

func (s fixture) state(t *testing.T) outbox.EndpointState {
	t.Helper()
	found, err := s.Endpoints(t.Context(), s.bucket(), s.asks.MerchantID)
	must(t, err)
	if len(found.States) != 1 || found.States[0].MerchantID != s.asks.MerchantID {
		t.Fatalf("found %+v", found)
	}
	return found.States[0]
}

func leaseIDs(leases []outbox.Lease) []string {
	ids := make([]string, len(leases))
	for i, lease := range leases {
		ids[i] = lease.Event.ID
	}
	return ids
}

func deadLetterIDs(letters []outbox.DeadLetter) []string {
	ids := make([]string, len(letters))
	for i, letter := range letters {
		ids[i] = letter.Event.ID
	}
	return ids
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

func second[T any](_ T, err error) error { return err }
