package payer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// queues are the queues of payers, one to each Redis server. Payers cost nothing to invent and return all at once after a restart, so
// only a few of their requests are served at a time; charges never wait behind the others, neither for Redis nor for a processor. A server
// that is slow or gone delays no payer of another one.
type queues struct {
	places    int // of each queue
	most      int // that wait in all of them
	clustered bool
	refused   prometheus.Counter

	mu      sync.Mutex
	waiting int                     // in all of them
	queues  map[string]*serverQueue // by server
}

// serverQueue is the queue of the payers whose sessions are on one Redis server.
type serverQueue struct {
	all    *queues
	places chan struct{} // has room for the requests that are served
	// The mutex of all guards these.
	waiting int
	outage  chan struct{} // closed when Redis does not serve a payer: then nobody waits for it
}

const (
	// payersServed is enough for two processors and one batch of scripts, and little work before a charge.
	payersServed = 32
	// payersServedClustered is the same for each primary of a Redis Cluster, of which there are at least three.
	payersServedClustered = payersServed / 3
	// payerPatience is the most time in the queue: less than clients and proxies wait for an answer.
	payerPatience = 5 * time.Second
)

// ErrCrowded means that too many payers wait for Redis.
var ErrCrowded = errors.New("too many payers are waiting")

// newQueues returns queues in which at most half of all connections wait: the others are for tills.
func newQueues(maxConnections int, clustered bool, registerer prometheus.Registerer) *queues {
	q := &queues{places: payersServed, most: max(1, maxConnections/2), clustered: clustered, queues: map[string]*serverQueue{}}
	if clustered {
		q.places = payersServedClustered
	}
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

// to returns the queue to a server. Servers come and go with failovers, so there are few.
func (q *queues) to(server string) *serverQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.queues[server]
	if queue == nil {
		queue = &serverQueue{all: q, places: make(chan struct{}, q.places), outage: make(chan struct{})}
		q.queues[server] = queue
	}
	return queue
}

// enter waits for the turn of a payer's request, which must end with leave. The errors are ErrCrowded, that of ctx, and
// redis.ErrUnavailable: if one payer's read finds that, those who wait for the same server have it at once.
func (q *serverQueue) enter(ctx context.Context) error {
	select {
	case q.places <- struct{}{}:
		return nil
	default:
		return q.wait(ctx)
	}
}

// leave ends a turn, with the error of its read. A client that left says nothing about Redis.
func (q *serverQueue) leave(err error) {
	<-q.places
	if !redis.ServesNobody(err) || errors.Is(err, context.Canceled) {
		return
	}
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	close(q.outage)
	q.outage = make(chan struct{})
}

// wait waits for a place.
func (q *serverQueue) wait(ctx context.Context) error {
	outage, err := q.all.join(q)
	if err != nil {
		return err
	}
	defer q.all.exit(q)
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
		q.all.refused.Inc()
		return ErrCrowded
	}
}

// join counts one who waits in a queue, and returns the outage that ends the wait. If too many wait, the error is ErrCrowded. In a Redis Cluster no
// more payers wait for one server than there is room left for the others: the payers of a server that is gone never take all the room.
func (q *queues) join(queue *serverQueue) (outage <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting >= q.most || q.clustered && queue.waiting >= q.most-q.waiting {
		q.refused.Inc()
		return nil, ErrCrowded
	}
	q.waiting++
	queue.waiting++
	return queue.outage, nil
}

func (q *queues) exit(queue *serverQueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	queue.waiting--
}
