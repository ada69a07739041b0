package ops

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// Redis says how it is.
type Redis interface {
	Health(ctx context.Context) redis.Health
}

// probeInterval is the least time between two looks at Redis.
const probeInterval = time.Second

// probe looks at Redis for probes and scrapes. Anyone may send them, at any rate: however many they are, they share one look.
type probe struct {
	redis Redis

	mu    sync.Mutex // held during a look: who comes meanwhile waits for it
	at    time.Time  // of the last look
	found redis.Health
}

func (p *probe) health() redis.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) >= probeInterval {
		p.found = p.redis.Health(context.Background()) // not of one caller, who may leave
		p.at = time.Now()
	}
	return p.found
}

var (
	redisUp = prometheus.NewDesc("merchant_operator_redis_up",
		"1 if every Redis server responds and does not evict keys, checked at most once a second.", nil, nil)
	serverUp = prometheus.NewDesc("merchant_operator_redis_server_up",
		"1 if this Redis server, a primary of a Redis Cluster or the only one, responds and does not evict keys.", []string{"server"}, nil)
)

// Describe is of prometheus.Collector.
func (p *probe) Describe(all chan<- *prometheus.Desc) {
	all <- redisUp
	all <- serverUp
}

// Collect is of prometheus.Collector.
func (p *probe) Collect(metrics chan<- prometheus.Metric) {
	health := p.health()
	metrics <- prometheus.MustNewConstMetric(redisUp, prometheus.GaugeValue, up(health.Err))
	for server, err := range health.Servers {
		metrics <- prometheus.MustNewConstMetric(serverUp, prometheus.GaugeValue, up(err), server)
	}
}

func up(err error) float64 {
	if err != nil {
		return 0
	}
	return 1
}
