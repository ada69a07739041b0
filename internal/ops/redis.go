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

const (
	// probeInterval is the least time between two looks at Redis.
	probeInterval = time.Second
	// probeWait is how long a probe waits for a look: less than the second after which a kubelet gives up.
	probeWait = 500 * time.Millisecond
)

// probe looks at Redis for probes and scrapes. Anyone may send them, at any rate: however many they are, they share one look. A look that
// takes longer than probeWait, because a server is silent, is finished for the probes that come later.
type probe struct {
	redis Redis

	mu      sync.Mutex
	looking chan struct{} // closed at the end of the look in progress; nil: there is none
	at      time.Time     // when the last look ended
	found   redis.Health
}

// health returns what the last look found. Before the end of the first one, Redis is unavailable.
func (p *probe) health() redis.Health {
	if looking := p.look(); looking != nil {
		select {
		case <-looking:
		case <-time.After(probeWait):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() {
		return redis.Health{Err: redis.ErrUnavailable}
	}
	return p.found
}

// look begins a look if one is due, and returns the one in progress; nil: there is none.
func (p *probe) look() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.looking != nil || time.Since(p.at) < probeInterval {
		return p.looking
	}
	p.looking = make(chan struct{})
	go func() {
		found := p.redis.Health(context.Background()) // not of one caller, who may leave
		p.mu.Lock()
		defer p.mu.Unlock()
		p.found, p.at = found, time.Now()
		close(p.looking)
		p.looking = nil
	}()
	return p.looking
}

var (
	redisUp = prometheus.NewDesc("merchant_operator_redis_up",
		"1 if every Redis server responds and does not evict keys, checked at most once a second.", nil, nil)
	serverUp = prometheus.NewDesc("merchant_operator_redis_server_up",
		"1 if this Redis server, a primary of a Redis Cluster or the only one, responds and does not evict keys.", []string{"server"}, nil)
)

// Describe implements prometheus.Collector.
func (p *probe) Describe(all chan<- *prometheus.Desc) {
	all <- redisUp
	all <- serverUp
}

// Collect implements prometheus.Collector.
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
