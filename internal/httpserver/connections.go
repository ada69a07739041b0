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

// connections limits the open connections of a server. Over the limit, a new connection closes the one that has been idle
// longest, so clients lose unused connections and keep used ones. If no other is idle, the new one is closed.
type connections struct {
	limit   int
	evicted prometheus.Counter

	mu       sync.Mutex
	open     int
	draining bool
	// idle is a ring of the idle connections: idle.next has been idle longest, idle.prev shortest.
	idle connection
}

// connection is in the ring while it waits for a request, also for the first one.
type connection struct {
	jsonErrorConn

	connections *connections
	prev, next  *connection // nil if not idle
	dropped     atomic.Bool // it will be closed: it is no longer counted, and no request on it is handled
}

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

// trackingListener wraps the connections that it accepts.
type trackingListener struct {
	net.Listener

	connections *connections
}

// Accept waits for the next connection.
func (l trackingListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		return &connection{jsonErrorConn: jsonErrorConn{tcp}, connections: l.connections}, nil
	}
	return accepted, nil
}

func newConnections(limit int, registerer prometheus.Registerer, listener string) *connections {
	c := &connections{limit: limit}
	c.idle.prev, c.idle.next = &c.idle, &c.idle
	factory := promauto.With(registerer)
	labels := prometheus.Labels{"listener": listener}
	c.evicted = factory.NewCounter(prometheus.CounterOpts{
		Name:        "merchant_operator_http_connections_evicted_total",
		Help:        "Idle connections closed because of the connection limit.",
		ConstLabels: labels,
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "merchant_operator_http_connections",
		Help:        "Open connections, without those of streams and long polls.",
		ConstLabels: labels,
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.open)
	})
	return c
}

// onStateChange is the ConnState of the server. For net/http a connection is active from the end of a request's headers to the
// end of the response.
func (c *connections) onStateChange(of net.Conn, state http.ConnState) {
	if connection := unwrap(of); connection != nil {
		if surplus := c.move(connection, state); surplus != nil {
			c.evicted.Inc()
			_ = surplus.Close()
		}
	}
}

// unwrap returns our connection, also below TLS; nil if it is another type.
func unwrap(of net.Conn) *connection {
	if wrapped, ok := of.(interface{ NetConn() net.Conn }); ok {
		of = wrapped.NetConn()
	}
	connection, _ := of.(*connection)
	return connection
}

// withConnection is the ConnContext of the server.
func withConnection(ctx context.Context, of net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, unwrap(of))
}

// Uncount takes the connection of a request out of the count until the returned function is called, which must be before the handler
// returns: a long response takes no room from short ones. The handler has to limit such responses itself.
func Uncount(ctx context.Context) (count func()) {
	connection, _ := ctx.Value(connectionKey{}).(*connection)
	if connection == nil {
		return func() {}
	}
	c := connection.connections
	c.add(-1)
	return func() { c.add(1) }
}

func (c *connections) add(open int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += open
}

// abortDropped aborts requests on dropped connections. net/http may read a request just before its connection is dropped; it
// must not be handled, because its response cannot be sent.
func abortDropped(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if connection, _ := r.Context().Value(connectionKey{}).(*connection); connection != nil && connection.dropped.Load() {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	})
}

// dropIdle drops all idle connections, so that a server that shuts down can close them.
func (c *connections) dropIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	for c.idle.next != &c.idle {
		c.drop(c.idle.next)
	}
}

func (c *connections) drop(connection *connection) {
	connection.dropped.Store(true)
	connection.removeIdle()
	c.open--
}

// move counts a connection and puts it into the ring or takes it out. It returns a connection to close, or nil.
func (c *connections) move(moved *connection, state http.ConnState) (surplus *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if moved.dropped.Load() {
		return nil
	}
	switch state {
	case http.StateNew:
		c.open++
		moved.pushIdle(&c.idle)
		if c.open > c.limit {
			surplus = c.idle.next
			c.drop(surplus)
		}
	case http.StateIdle:
		moved.pushIdle(&c.idle)
		switch {
		case c.draining:
			c.drop(moved)
		case c.open > c.limit: // it was not counted during its request
			surplus = c.idle.next
			c.drop(surplus)
		}
	case http.StateActive:
		moved.removeIdle()
	case http.StateClosed, http.StateHijacked:
		moved.removeIdle()
		c.open--
	}
	return surplus
}

func (c *connection) pushIdle(ring *connection) {
	c.prev, c.next = ring.prev, ring
	c.prev.next, c.next.prev = c, c
}

func (c *connection) removeIdle() {
	if c.next == nil {
		return
	}
	c.prev.next, c.next.prev = c.next, c.prev
	c.prev, c.next = nil, nil
}
