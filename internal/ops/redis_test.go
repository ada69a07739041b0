package ops

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// redisFixture counts looks, and is as the test says.
type redisFixture struct {
	looks  atomic.Int64
	health redis.Health
}

// Health implements Redis.
func (r *redisFixture) Health(context.Context) redis.Health {
	r.looks.Add(1)
	return r.health
}

// Nobody needs a token for /readyz. A flood of them looks at Redis once a second, and each gets an answer.
func TestHandler_ReadyFlood(t *testing.T) {
	stored, phase := &redisFixture{}, NewPhase()
	phase.Set(Serving)
	handler := NewHandler(Health{Phase: phase, Redis: stored, Age: func() time.Duration { return 0 }, MaxAge: time.Hour}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	started := time.Now()
	var flood sync.WaitGroup
	for range 500 {
		flood.Go(func() {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
			if answer.Code != http.StatusOK {
				t.Errorf("status %d", answer.Code)
			}
		})
	}
	flood.Wait()
	if most := int64(time.Since(started)/probeInterval) + 1; stored.looks.Load() > most {
		t.Errorf("Redis was asked %d times, want %d", stored.looks.Load(), most)
	}
}

// A Redis that does not answer holds no probe for a kubelet's second, and one look is in progress at a time.
func TestHandler_ReadyWhileRedisIsSilent(t *testing.T) {
	silent, phase := &silentRedis{release: make(chan struct{})}, NewPhase()
	phase.Set(Serving)
	handler := NewHandler(Health{Phase: phase, Redis: silent, Age: func() time.Duration { return 0 }, MaxAge: time.Hour}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	for range 3 {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
		if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "unavailable") {
			t.Errorf("%d: %s", answer.Code, answer.Body)
		}
	}
	if looks := silent.looks.Load(); looks != 1 {
		t.Errorf("%d looks at once", looks)
	}
	close(silent.release)
}

// silentRedis answers when it is released.
type silentRedis struct {
	looks   atomic.Int64
	release chan struct{}
}

// Health implements Redis.
func (r *silentRedis) Health(context.Context) redis.Health {
	r.looks.Add(1)
	<-r.release
	return redis.Health{}
}

// While a primary of a Redis Cluster is gone, the metric says which.
func TestProbe_ServerGone(t *testing.T) {
	gone := errors.New("no answer")
	p := &probe{redis: &redisFixture{health: redis.Health{Err: gone, Servers: map[string]error{"10.0.0.1:6379": nil, "10.0.0.2:6379": gone}}}}
	want := `
# HELP merchant_operator_redis_server_up 1 if this Redis server, a primary of a Redis Cluster or the only one, responds and does not evict keys.
# TYPE merchant_operator_redis_server_up gauge
merchant_operator_redis_server_up{server="10.0.0.1:6379"} 1
merchant_operator_redis_server_up{server="10.0.0.2:6379"} 0
# HELP merchant_operator_redis_up 1 if every Redis server responds and does not evict keys, checked at most once a second.
# TYPE merchant_operator_redis_up gauge
merchant_operator_redis_up 0
`
	if err := testutil.CollectAndCompare(p, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
