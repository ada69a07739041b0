package redis_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// One primary of a Redis Cluster is frozen. A replica that starts then serves the merchants of the others, says which primary is gone, and what is
// for a healthy one does not wait for it.
func TestCluster_PrimaryGone(t *testing.T) {
	servers := storetest.StartCluster(t)
	gone := servers[2]
	gone.Pause()
	client := storetest.Client(t, "redis+cluster://"+servers[0].Addr(), func(o *redis.Options) { o.Timeout = 300 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Timeout)
	defer cancel()
	if err := client.Await(ctx, slog.New(slog.DiscardHandler)); err != nil || ctx.Err() != nil {
		t.Fatalf("a replica is not ready: %v, %v", err, ctx.Err())
	}
	health := client.Health(t.Context())
	for _, server := range servers {
		if err, known := health.Servers[server.Addr()]; !known || (err != nil) != (server == gone) {
			t.Errorf("%s: known %t, %v", server.Addr(), known, err)
		}
	}
	if !errors.Is(health.Err, redis.ErrUnavailable) || !health.Serves() {
		t.Errorf("health: %v, serves: %t", health.Err, health.Serves())
	}

	await.Until(t, storetest.Timeout, "a request has found the slots", func() bool {
		_, _ = admission.New(client, 0).Admit(t.Context(), storetest.Merchant())
		return len(client.ByServer(t.Context(), session.AllBuckets())) == len(servers)
	})
	var tried, done atomic.Int64
	err := client.ForEach(t.Context(), session.AllBuckets(), func(ctx context.Context, bucket session.Bucket) error {
		if client.Server(ctx, string(redis.BucketKeyspace(bucket))) == gone.Addr() {
			tried.Add(1)
			return redis.ErrUnavailable
		}
		done.Add(1)
		return nil
	})
	if !errors.Is(err, redis.ErrUnavailable) || tried.Load() != 1 || done.Load() < session.Buckets/2 {
		t.Errorf("%v; %d buckets of the server that is gone were tried, %d of the others done", err, tried.Load(), done.Load())
	}
}
