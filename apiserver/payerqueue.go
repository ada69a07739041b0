package apiserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// payerQueue is the queue of payers. Payers cost nothing to invent and return all at once after a restart, so only a few of their requests
// are served at a time; charges never wait behind the others, neither for Redis nor for a processor.
type payerQueue struct {
	places  chan struct{} // has room for the requests that are served
	most    int           // that wait
	refused prometheus.Counter

	mu      sync.Mutex
	waiting int
	outage  chan struct{} // closed when Redis does not serve a payer: then nobody waits for it
}

const (
	// payersServed is enough for two processors and one batch of scripts, and little work before a charge.
	payersServed = 32
	// payerPatience is the most time in the queue: less than clients and proxies wait for an answer.
	payerPatience = 5 * time.Second
)

var errPayersWaiting = errors.New("too many payers are waiting")

// newPayerQueue returns a queue in which at most half of all connections wait: the others are for tills.
func newPayerQueue(maxConnections int, registerer prometheus.Registerer) *payerQueue {
	q := &payerQueue{places: make(chan struct{}, payersServed), most: max(1, maxConnections/2), outage: make(chan struct{})}
	factory := promauto.With(registerer)
	q.refused = factory.NewCounter(prometheus.CounterOpts{
		Name: "merchant_operator_payers_refused_total",
		Help: "Requests of payers with response 503, because too many were waiting or one waited for 5 seconds.",
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "merchant_operator_payers_waiting",
		Help: "Requests of payers that wait in their queue.",
	}, func() float64 {
		q.mu.Lock()
		defer q.mu.Unlock()
		return float64(q.waiting)
	})
	return q
}

// enter waits for the turn of a payer's request, which must end with leave. The errors are errPayersWaiting, that of ctx, and
// redis.ErrUnavailable: if one payer's read finds that, those who wait have it at once.
func (q *payerQueue) enter(ctx context.Context) error {
	select {
	case q.places <- struct{}{}:
		return nil
	default:
		return q.wait(ctx)
	}
}

// leave ends a turn, with the error of its read. A client that left says nothing about Redis.
func (q *payerQueue) leave(err error) {
	<-q.places
	if !errors.Is(err, redis.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.outage)
	q.outage = make(chan struct{})
}

// wait waits for a place.
func (q *payerQueue) wait(ctx context.Context) error {
	q.mu.Lock()
	if q.waiting >= q.most {
		q.mu.Unlock()
		q.refused.Inc()
		return errPayersWaiting
	}
	q.waiting++
	outage := q.outage
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		q.waiting--
		q.mu.Unlock()
	}()
	timer := time.NewTimer(payerPatience)
	defer timer.Stop()
	select {
	case q.places <- struct{}{}:
		return nil
	case <-outage:
		return redis.ErrUnavailable
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		q.refused.Inc()
		return errPayersWaiting
	}
}
