package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// A cluster rejects a script whose keys are of more than one slot, so this is the proof that all keys
// of every operation are of one.
func TestCluster(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	s := open(t, fmt.Sprintf("redis+cluster://%s?addr=%s", servers[0].Addr(), servers[1].Addr()))
	must(t, s.Check(t.Context()))
	for bucket := range session.Bucket(session.Buckets) {
		asks := merchantIn(bucket)
		request := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
		created := mustCreate(t, s, asks, request).Session
		if again := mustCreate(t, s, asks, request); !again.Replayed || again.Session.ID != created.ID {
			t.Errorf("bucket %d: a repeated Idempotency-Key: %+v", bucket, again)
		}
		if _, read, err := s.Session(t.Context(), asks, created.ID); err != nil || read.ID != created.ID {
			t.Errorf("bucket %d: read: %v", bucket, err)
		}
		if _, _, err := s.PublicSession(t.Context(), payer(), created.ID); err != nil {
			t.Errorf("bucket %d: public read: %v", bucket, err)
		}
		expiring := mustCreate(t, s, asks, with(newSession(), short)).Session
		cancelled := mustCreate(t, s, asks, with(newSession(), func(n *store.NewSession) { n.EmitCreated = true })).Session
		if _, got, err := s.Cancel(t.Context(), asks, cancelled.ID); err != nil || got.Status != session.Cancelled {
			t.Errorf("bucket %d: cancel: %s, %v", bucket, got.Status, err)
		}
		if settled, err := s.Settle(t.Context(), created.ID, paid("a")); err != nil || !settled.Applied {
			t.Errorf("bucket %d: settle: %+v, %v", bucket, settled, err)
		}
		if late, err := s.Settle(t.Context(), cancelled.ID, paid("a")); err != nil || !late.RefundRequired {
			t.Errorf("bucket %d: a late payment: %+v, %v", bucket, late, err)
		}
		if recorded, err := s.RecordRotation(t.Context(), newRotation(asks, 2), rotatedAt, feed.History{}); err != nil || !recorded {
			t.Errorf("bucket %d: a rotation: %v, %v", bucket, recorded, err)
		}
		due(t, s, expiring)
		if swept := sweepAll(t, s, bucket, 10); swept.Expired != 1 {
			t.Errorf("bucket %d: sweep: %+v", bucket, swept)
		}
		must(t, s.Keys.WriteOverride(t.Context(), keystate.Override{Ref: keyRef(asks), Order: published.Order{Revision: 9}}))
		if _, err := s.Admit(t.Context(), asks); !errors.Is(err, admission.ErrKeyRejected) {
			t.Errorf("bucket %d: a revoked key: %v", bucket, err)
		}
	}
	for i, server := range servers {
		if n := len(client(t, server).Keys(t.Context(), "*:session:*").Val()); n < session.Buckets/6 {
			t.Errorf("server %d holds %d of %d sessions", i, n, session.Buckets)
		}
		events := len(client(t, server).Keys(t.Context(), "*:event:*").Val())
		if sessions := len(client(t, server).Keys(t.Context(), "*:session:*").Val()); events != sessions*2 {
			t.Errorf("server %d holds %d events of %d sessions, want 6 for each 3", i, events, sessions)
		}
	}
	must(t, client(t, servers[2]).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	if err := s.Check(t.Context()); !errors.Is(err, redis.ErrEviction) {
		t.Errorf("Check with one server that may evict: %v", err)
	}
}

// While a cluster is resized, slots move under the requests. None of them fails or has its effect twice.
func TestCluster_SlotMoves(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	s := open(t, "redis+cluster://"+servers[0].Addr())
	asks := merchantIn(7)
	created := mustCreate(t, s, asks, newSession()).Session

	clients := make([]*goredis.Client, len(servers))
	for i, server := range servers {
		clients[i] = client(t, server)
	}
	slot := int(clients[0].ClusterKeySlot(t.Context(), merchantTag(asks.MerchantID)).Val())
	from := clients[slot*3/slots]
	to := clients[(slot*3/slots+1)%3]
	toID := moveSlot(t, slot, from, to)
	for _, c := range []*goredis.Client{to, from} {
		must(t, c.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", toID).Err())
	}

	if _, read, err := s.Session(t.Context(), asks, created.ID); err != nil || read.ID != created.ID {
		t.Errorf("the first read after the move: %v", err)
	}
	mustCreate(t, s, asks, newSession())
	if n := to.ClusterCountKeysInSlot(t.Context(), slot).Val(); n < 2 {
		t.Errorf("%d keys of the bucket at its new server", n)
	}
}

// movingTrade is what goes on in a bucket while its slot moves: charges that end in every way, and a dispatcher.
type movingTrade struct {
	*services

	asks   admission.Request
	bucket session.Bucket
	calls  atomic.Int64

	mu        sync.Mutex
	created   []session.ID
	delivered map[string]feed.Event // those that were ended, by their ids
	wrong     []string
}

func (m *movingTrade) log(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

// call makes one call, which a cluster that moves the slot may reject.
func (m *movingTrade) call(what string, err error) bool {
	m.calls.Add(1)
	if err != nil && !errors.Is(err, redis.ErrUnavailable) && !errors.Is(err, store.ErrSessionEnded) && !errors.Is(err, outbox.ErrLeaseLost) {
		m.log("%s: %v", what, err)
	}
	return err == nil
}

// charge creates a session and ends it in the way of this turn, as often as it takes.
func (m *movingTrade) charge(ctx context.Context, turn int) {
	key, err := session.ParseIdempotencyKey(newID())
	if err != nil {
		m.log("%v", err)
	}
	request := with(newSession(), func(n *store.NewSession) { n.Idempotency, n.EmitCreated = key, turn%2 == 0 })
	if turn%4 == 3 {
		short(&request)
	}
	var id session.ID
	for again := true; again; {
		_, created, err := m.CreateSession(ctx, m.asks, request)
		again, id = !m.call("create", err), created.Session.ID
	}
	m.mu.Lock()
	m.created = append(m.created, id)
	m.mu.Unlock()
	for again := true; again; {
		switch turn % 4 {
		case 0:
			_, err = m.Settle(ctx, id, paid("a"))
		case 1:
			_, _, err = m.Cancel(ctx, m.asks, id)
		case 2:
			_, err = m.Settle(ctx, id, failed("a"))
		case 3:
			_, _, err = m.PublicSession(ctx, payer(), id)
		}
		again = !m.call("end", err)
	}
	if turn%3 == 0 { // too late, or once more
		_, err = m.Settle(ctx, id, paid("b"))
		m.call("a late payment", err)
	}
}

// checkFeed compares the feed, followed by its cursors, with the events that were delivered: each but the creations is there, once, and those
// of one session are in their order.
func (m *movingTrade) checkFeed(t *testing.T) {
	t.Helper()
	sequences := map[session.ID]int64{}
	seen := map[string]bool{}
	for cursor := (feed.Cursor{}); cursor.HeadAt.IsZero(); {
		_, page, err := m.Feed(t.Context(), m.asks, cursor, 50)
		if err != nil || page.Corrupt > 0 {
			t.Fatal(page.Corrupt, err)
		}
		for _, entry := range page.Entries {
			event := entry.Event
			if _, delivered := m.delivered[event.ID]; !delivered || seen[event.ID] || event.Session.Sequence <= sequences[event.Session.ID] {
				t.Errorf("%s with sequence %d is in the feed, after %d; delivered: %t", event.ID, event.Session.Sequence, sequences[event.Session.ID], delivered)
			}
			seen[event.ID], sequences[event.Session.ID] = true, event.Session.Sequence
		}
		cursor = page.Cursor
	}
	for id, event := range m.delivered {
		if event.Kind != v1alpha1.EventSessionCreated && !seen[id] {
			t.Errorf("%s was delivered, and is not in the feed", id)
		}
	}
}

// dispatch delivers what is due, and sweeps. It reports whether there was anything, or it could not be known.
func (m *movingTrade) dispatch(ctx context.Context) (more bool) {
	swept, err := m.Sweep(ctx, m.bucket, 100)
	more = !m.call("sweep", err) || swept.Expired > 0 || swept.More
	leased, err := m.Lease(ctx, m.bucket, outbox.LeaseRequest{For: 200 * time.Millisecond, Limit: 20})
	more = !m.call("lease", err) || len(leased.Leases) > 0 || more
	for _, id := range leased.Undecodable {
		m.log("%s is unreadable", id)
	}
	for _, lease := range leased.Leases {
		m.mu.Lock()
		_, before := m.delivered[lease.Event.ID]
		m.mu.Unlock()
		if before {
			m.log("%s came again after its delivery was recorded", lease.Event.ID)
		}
		if m.call("deliver", m.RecordDelivery(ctx, lease, outbox.Target{ID: "here"})) {
			m.mu.Lock()
			m.delivered[lease.Event.ID] = lease.Event
			m.mu.Unlock()
		}
	}
	return more
}

// handOver moves the slot from one server to another, key by key. Halfway it waits until callers have met it like that.
func (m *movingTrade) handOver(t *testing.T, slot int, from, to *goredis.Client, all []*goredis.Client) {
	t.Helper()
	ctx := t.Context()
	toID := to.Do(ctx, "CLUSTER", "MYID").Val()
	must(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do(ctx, "CLUSTER", "MYID").Val()).Err())
	must(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err())
	host, port, err := net.SplitHostPort(to.Options().Addr)
	must(t, err)
	half := from.ClusterCountKeysInSlot(ctx, slot).Val() / 2
	for moved := int64(0); ; moved++ {
		keys := from.ClusterGetKeysInSlot(ctx, slot, 1).Val()
		if len(keys) == 0 {
			break
		}
		if err := from.Migrate(ctx, host, port, keys[0], 0, patience).Err(); err != nil {
			t.Fatalf("move %s, which must not be on both servers: %v", keys[0], err)
		}
		if moved == half {
			met := m.calls.Load() + 50
			eventually(t, "callers meet the slot while it moves", func() bool { return m.calls.Load() >= met })
		}
	}
	for _, c := range append([]*goredis.Client{to, from}, all...) { // the new owner first
		must(t, c.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID).Err())
	}
}

// A cluster is resized under load, there and back. No event is lost and none is doubled.
func TestCluster_SlotMovesToAndFro(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	asks := merchantIn(7)
	m := &movingTrade{
		services: open(t, "redis+cluster://"+servers[0].Addr()), asks: asks, bucket: 7, delivered: map[string]feed.Event{},
	}
	var all []*goredis.Client
	for _, server := range servers {
		all = append(all, client(t, server))
	}
	slot := int(all[0].ClusterKeySlot(t.Context(), merchantTag(asks.MerchantID)).Val())
	owner := slot * 3 / slots

	for turn := range 12 { // something to move
		m.charge(t.Context(), turn)
	}
	ending := make(chan struct{})
	ended := func() bool {
		select {
		case <-ending:
			return true
		default:
			return false
		}
	}
	var traders sync.WaitGroup
	for caller := range 4 {
		traders.Go(func() {
			for turn := caller; !ended(); turn++ {
				m.charge(t.Context(), turn)
			}
		})
	}
	traders.Go(func() {
		for !ended() {
			m.dispatch(t.Context())
		}
	})
	for range 6 {
		next := (owner + 1) % len(all)
		m.handOver(t, slot, all[owner], all[next], all)
		owner = next
		met := m.calls.Load() + 100
		eventually(t, "trade goes on at the new server", func() bool { return m.calls.Load() >= met })
	}
	close(ending)
	traders.Wait()

	at := all[owner]
	eventually(t, "all is delivered", func() bool {
		more := m.dispatch(t.Context())
		backlog, err := m.Backlog(t.Context(), 7)
		return !more && err == nil && backlog.Due == 0
	})
	bySession := map[string]int64{}
	for id, event := range m.delivered {
		bySession[event.Session.ID.String()]++
		if event.ID != id {
			t.Errorf("%s is delivered as %s", event.ID, id)
		}
	}
	for _, id := range m.created {
		fields := at.HGetAll(t.Context(), merchantTag(asks.MerchantID)+"session:"+id.String()).Val()
		sequence, _ := strconv.ParseInt(fields["q"], 10, 64)
		if fields["s"] == "" || sequence == 0 || bySession[id.String()] != sequence {
			t.Errorf("%s is %q after %d changes, of which %d were delivered", id, fields["s"], sequence, bySession[id.String()])
		}
		if _, ended := m.delivered[feed.SessionEventID(id, feed.MarkEnded)]; !ended {
			t.Errorf("%s has ended, and no event of it was delivered", id)
		}
	}
	m.checkFeed(t)
	for _, wrong := range m.wrong {
		t.Error(wrong)
	}
	if left := at.Keys(t.Context(), "*event:*").Val(); len(left) != 0 {
		t.Errorf("events that will not be delivered: %v", left)
	}
	t.Logf("%d sessions, %d events, %d calls", len(m.created), len(m.delivered), m.calls.Load())
}
