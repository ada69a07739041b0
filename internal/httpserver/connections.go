package httpserver

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// connections are those a server has open, at most so many of them. For each one more that is opened, the one that has waited
// longest for a request is closed. So whoever holds connections without using them loses them, and whoever
// uses his keeps them. A new one that finds a request under way on all others is closed itself.
type connections struct {
	most    int
	evicted prometheus.Counter

	mu       sync.Mutex
	open     int
	draining bool
	// ring is of those that wait for a request: ring.after has waited longest, ring.before was the last to begin.
	ring connection
}

// connection is part of the ring while it waits for a request, the first one included.
type connection struct {
	shapedConn

	before, after *connection // nil outside of the ring
	dropped       atomic.Bool // it is about to be closed: it is not counted any more, and no request on it is handled
}

// connectionKey is where the context of a request has its connection.
type connectionKey struct{}

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
	if connection := connectionOf(of); connection != nil {
		if surplus := c.move(connection, state); surplus != nil {
			c.evicted.Inc()
			_ = surplus.Close()
		}
	}
}

// connectionOf returns our connection, below TLS too; nil: it is not ours.
func connectionOf(of net.Conn) *connection {
	if wrapped, ok := of.(interface{ NetConn() net.Conn }); ok {
		of = wrapped.NetConn()
	}
	connection, _ := of.(*connection)
	return connection
}

// withConnection is the ConnContext of the server.
func withConnection(ctx context.Context, of net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connectionOf(of))
}

// answerable handles a request only if its answer can be sent. net/http may have read a request by the time its
// connection is chosen to be closed; handled, it would be done and never answered.
func answerable(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if connection, _ := r.Context().Value(connectionKey{}).(*connection); connection != nil && connection.dropped.Load() {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	})
}

// dropIdle has no more requests handled on the connections that wait for one, so that a server that shuts down can close
// them.
func (c *connections) dropIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	for c.ring.after != &c.ring {
		c.drop(c.ring.after)
	}
}

func (c *connections) drop(connection *connection) {
	connection.dropped.Store(true)
	connection.leave()
	c.open--
}

// move counts a connection and puts it where it belongs. It returns one that must be closed, or nil.
func (c *connections) move(moved *connection, state http.ConnState) (surplus *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if moved.dropped.Load() {
		return nil
	}
	switch state {
	case http.StateNew:
		c.open++
		moved.enter(&c.ring)
		if c.open > c.most {
			surplus = c.ring.after
			c.drop(surplus)
		}
	case http.StateIdle:
		moved.enter(&c.ring)
		if c.draining {
			c.drop(moved)
		}
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
