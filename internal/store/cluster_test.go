package store_test

import (
	"errors"
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// A real cluster refuses a script whose keys are of more than one slot, so this is the proof that all keys
// of every operation are of one.
func TestARedisCluster(t *testing.T) {
	servers := startCluster(t)
	s := open(t, fmt.Sprintf("redis+cluster://%s?addr=%s", servers[0].Addr(), servers[1].Addr()))
	must(t, s.Check(t.Context()))
	for bucket := range session.Bucket(session.Buckets) {
		asks := merchantOf(bucket)
		wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
		created := mustCreate(t, s, asks, wanted).Session
		if again := mustCreate(t, s, asks, wanted); !again.Replayed || again.Session.ID != created.ID {
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
		if recorded, err := s.RecordRotation(t.Context(), rotationOf(asks, 2), rotatedAt, feed.History{}); err != nil || !recorded {
			t.Errorf("bucket %d: a rotation: %v, %v", bucket, recorded, err)
		}
		due(t, s, expiring)
		if swept := sweepAll(t, s, bucket, 10); swept.Expired != 1 {
			t.Errorf("bucket %d: sweep: %+v", bucket, swept)
		}
		must(t, s.WriteOverride(t.Context(), store.Override{KeyRef: store.KeyRef{MerchantID: asks.MerchantID, KeyID: asks.KeyID}, Order: published.Order{Revision: 9}}))
		if _, err := s.Admit(t.Context(), asks); !errors.Is(err, store.ErrKeyRejected) {
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
func TestABucketThatMovesToAnotherServer(t *testing.T) {
	servers := startCluster(t)
	s := open(t, "redis+cluster://"+servers[0].Addr())
	asks := merchantOf(7)
	created := mustCreate(t, s, asks, newSession()).Session

	clients := make([]*goredis.Client, len(servers))
	for i, server := range servers {
		clients[i] = client(t, server)
	}
	slot := int(clients[0].ClusterKeySlot(t.Context(), bucketTag(asks.MerchantID)).Val())
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
