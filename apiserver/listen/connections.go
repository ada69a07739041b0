package listen

import (
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// connections are those a server has open, at most so many of them. For each one more that is opened, the one that has waited
// longest for a request is closed. So whoever holds connections without using them loses them, and whoever
// uses his keeps them. A new one that finds a request under way on all others is closed itself.
type connections struct {
	most    int
	evicted prometheus.Counter

	mu   sync.Mutex
	open int
	// ring is of those that wait for a request: ring.after has waited longest, ring.before was the last to begin.
	ring connection
}

// connection is part of the ring while it waits for a request, the first one included.
type connection struct {
	shapedConn

	before, after *connection // nil outside of the ring
	evicted       bool        // it is not counted any more, whatever becomes of it
}

// owner makes the connections of a listener ours.
type owner struct{ net.Listener }

// Accept waits for the next connection.
func (o owner) Accept() (net.Conn, error) {
	accepted, err := o.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		return &connection{shapedConn: shapedConn{tcp}}, nil
	}
	return accepted, nil
}

func newConnections(most int, registerer prometheus.Registerer, listener string) *connections {
	c := &connections{most: most}
	c.ring.before, c.ring.after = &c.ring, &c.ring
	factory := promauto.With(registerer)
	labels := prometheus.Labels{"listener": listener}
	c.evicted = factory.NewCounter(prometheus.CounterOpts{
		Name:        "merchant_operator_http_connections_evicted_total",
		Help:        "Connections that were closed while they waited for a request, because there were too many.",
		ConstLabels: labels,
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "merchant_operator_http_connections",
		Help:        "Connections that are open.",
		ConstLabels: labels,
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.open)
	})
	return c
}

// changed is the ConnState of the server. To net/http a request is under way from the end of its headers to the end of
// its answer.
func (c *connections) changed(of net.Conn, state http.ConnState) {
	if wrapped, ok := of.(interface{ NetConn() net.Conn }); ok {
		of = wrapped.NetConn() // below TLS
	}
	if connection, ok := of.(*connection); ok {
		if surplus := c.move(connection, state); surplus != nil {
			c.evicted.Inc()
			_ = surplus.Close()
		}
	}
}

// move counts a connection and puts it where it belongs. It returns one that must be closed, or nil.
func (c *connections) move(moved *connection, state http.ConnState) (surplus *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if moved.evicted {
		return nil
	}
	switch state {
	case http.StateNew:
		c.open++
		moved.enter(&c.ring)
		if c.open > c.most {
			surplus = c.ring.after
			surplus.evicted = true
			surplus.leave()
			c.open--
		}
	case http.StateIdle:
		moved.enter(&c.ring)
	case http.StateActive:
		moved.leave()
	case http.StateClosed, http.StateHijacked:
		moved.leave()
		c.open--
	}
	return surplus
}

func (c *connection) enter(ring *connection) {
	c.before, c.after = ring.before, ring
	c.before.after, c.after.before = c, c
}

func (c *connection) leave() {
	if c.after == nil {
		return
	}
	c.before.after, c.after.before = c.after, c.before
	c.before, c.after = nil, nil
}
