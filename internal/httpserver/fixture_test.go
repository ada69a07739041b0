package httpserver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/leaks"
)

const patience = 30 * time.Second

// fixture is a server that allows three connections. A request for /stay is answered when the test says so.
type fixture struct {
	*Server

	t        *testing.T
	address  string
	tls      bool
	registry *prometheus.Registry
	staying  chan struct{} // receives when such a request has come
	end      chan struct{} // closed when they are to be answered
	handled  sync.Map      // by the id of requests that have one
}

func newFixture(t *testing.T, secure bool) *fixture {
	t.Helper()
	r := &fixture{t: t, tls: secure, registry: prometheus.NewRegistry(), staying: make(chan struct{}), end: make(chan struct{})}
	number, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	r.address = fmt.Sprintf("127.0.0.1:%d", number)
	port := Options{
		Name: "test", Address: r.address, MaxConnections: 3, Log: slog.New(slog.DiscardHandler), Registerer: r.registry,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			if id := request.URL.Query().Get("id"); id != "" {
				if _, twice := r.handled.LoadOrStore(id, true); twice {
					t.Errorf("%s was handled twice", id)
				}
			}
			if request.URL.Query().Has("uncounted") {
				defer Uncount(request.Context())()
			}
			if request.URL.Path == "/stay" {
				r.staying <- struct{}{}
				<-r.end
			}
		}),
	}
	if secure {
		if port.TLS, err = TLS("", Options{Registerer: prometheus.NewRegistry()}); err != nil {
			t.Fatal(err)
		}
	}
	if r.Server, err = Serve(t.Context(), port, make(chan error, 1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// client is a connection of a client.
type client struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

func (r *fixture) connect() *client {
	r.t.Helper()
	raw, err := new(net.Dialer).DialContext(r.t.Context(), "tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.tls {
		raw = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	}
	r.t.Cleanup(func() { _ = raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(patience))
	return &client{r.t, raw, bufio.NewReader(raw)}
}

func (c *client) get(path string) { fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path) }

func (c *client) wantResponse(who string) {
	c.t.Helper()
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		c.t.Fatalf("%s got no answer: %v", who, err)
	}
	_ = answer.Body.Close()
}

func (c *client) wantClosed(who string) {
	c.t.Helper()
	if n, err := io.Copy(io.Discard, c.answers); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("%s was not closed: %d bytes, %v", who, n, err)
	}
}

func (r *fixture) wantCounts(open, evicted int) {
	r.t.Helper()
	want := fmt.Sprintf(`# HELP merchant_operator_http_connections Open connections, without those of streams and long polls.
# TYPE merchant_operator_http_connections gauge
merchant_operator_http_connections{listener="test"} %d
# HELP merchant_operator_http_connections_evicted_total Idle connections closed because of the connection limit.
# TYPE merchant_operator_http_connections_evicted_total counter
merchant_operator_http_connections_evicted_total{listener="test"} %d
`, open, evicted)
	await.Until(r.t, patience, "the metrics are\n"+want, func() bool {
		return testutil.GatherAndCompare(r.registry, strings.NewReader(want)) == nil
	})
}

// wantAllIdle waits until so many connections wait for a request.
func (r *fixture) wantAllIdle(count int) {
	r.t.Helper()
	await.Until(r.t, patience, fmt.Sprintf("%d connections are idle", count), func() bool {
		r.connections.mu.Lock()
		defer r.connections.mu.Unlock()
		idle := 0
		for at := r.connections.idle.next; at != &r.connections.idle; at = at.next {
			idle++
		}
		return idle == count
	})
}

func inBoth(t *testing.T, test func(r *fixture)) {
	t.Helper()
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) { test(newFixture(t, secure)) })
	}
}

// awaitIdle waits until connections wait for a request.
func (r *fixture) awaitIdle() {
	r.t.Helper()
	await.Until(r.t, patience, "a connection is idle", func() bool {
		r.connections.mu.Lock()
		defer r.connections.mu.Unlock()
		return r.connections.idle.next != &r.connections.idle
	})
}

func TestMain(m *testing.M) { leaks.Run(m, func() error { return nil }) }
