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
)

const patience = 30 * time.Second

// room is a server with room for three connections. A request for /stay is answered when the test says so.
type room struct {
	*Server

	t        *testing.T
	address  string
	tls      bool
	registry *prometheus.Registry
	staying  chan struct{} // receives when such a request has come
	end      chan struct{} // closed when they are to be answered
	handled  sync.Map      // by the id of requests that have one
}

func newRoom(t *testing.T, secure bool) *room {
	t.Helper()
	r := &room{t: t, tls: secure, registry: prometheus.NewRegistry(), staying: make(chan struct{}), end: make(chan struct{})}
	number, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	r.address = fmt.Sprintf("127.0.0.1:%d", number)
	port := Port{
		Name: "test", Address: r.address, MaxConnections: 3, Log: slog.New(slog.DiscardHandler), Registerer: r.registry,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			if id := request.URL.Query().Get("id"); id != "" {
				if _, twice := r.handled.LoadOrStore(id, true); twice {
					t.Errorf("%s was handled twice", id)
				}
			}
			if request.URL.Path == "/stay" {
				r.staying <- struct{}{}
				<-r.end
			}
		}),
	}
	if secure {
		if port.TLS, err = TLS(""); err != nil {
			t.Fatal(err)
		}
	}
	if r.Server, err = Serve(t.Context(), port, make(chan error, 1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// guest is a connection of a client.
type guest struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

func (r *room) enter() *guest {
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
	return &guest{r.t, raw, bufio.NewReader(raw)}
}

func (g *guest) ask(path string) { fmt.Fprintf(g, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path) }

func (g *guest) wantAnswer(who string) {
	g.t.Helper()
	answer, err := http.ReadResponse(g.answers, nil)
	if err != nil {
		g.t.Fatalf("%s got no answer: %v", who, err)
	}
	_ = answer.Body.Close()
}

func (g *guest) wantClosed(who string) {
	g.t.Helper()
	if n, err := io.Copy(io.Discard, g.answers); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		g.t.Errorf("%s was not closed: %d bytes, %v", who, n, err)
	}
}

func (r *room) wantCounts(open, evicted int) {
	r.t.Helper()
	want := fmt.Sprintf(`# HELP merchant_operator_http_connections Connections that are open.
# TYPE merchant_operator_http_connections gauge
merchant_operator_http_connections{listener="test"} %d
# HELP merchant_operator_http_connections_evicted_total Connections that were closed while they waited for a request, because there were too many.
# TYPE merchant_operator_http_connections_evicted_total counter
merchant_operator_http_connections_evicted_total{listener="test"} %d
`, open, evicted)
	await.Until(r.t, patience, "the metrics are\n"+want, func() bool {
		return testutil.GatherAndCompare(r.registry, strings.NewReader(want)) == nil
	})
}

// wantAllIdle waits until so many connections wait for a request.
func (r *room) wantAllIdle(count int) {
	r.t.Helper()
	await.Until(r.t, patience, fmt.Sprintf("%d connections are idle", count), func() bool {
		r.connections.mu.Lock()
		defer r.connections.mu.Unlock()
		idle := 0
		for at := r.connections.ring.after; at != &r.connections.ring; at = at.after {
			idle++
		}
		return idle == count
	})
}

func inBoth(t *testing.T, test func(r *room)) {
	t.Helper()
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) { test(newRoom(t, secure)) })
	}
}

func TestWhoWaitsLongestMakesRoom(t *testing.T) {
	inBoth(t, func(r *room) {
		first, second, third := r.enter(), r.enter(), r.enter()
		for _, g := range []*guest{first, second, third, first} {
			g.ask("/")
			g.wantAnswer("one of three")
			r.wantAllIdle(3) // an answer arrives before its connection counts as idle
		}
		fourth := r.enter()
		fourth.ask("/")
		fourth.wantAnswer("the fourth")
		second.wantClosed("the second, which has waited longest,")
		for _, g := range []*guest{third, first} {
			g.ask("/")
			g.wantAnswer("one that stays")
		}
		r.wantCounts(3, 1)
	})
}

// An attacker opens connections and says nothing, or never ends a header.
func TestWhoIsAtWorkOutlivesAFloodOfConnections(t *testing.T) {
	inBoth(t, func(r *room) {
		till := r.enter()
		for i := range 100 {
			till.ask("/")
			till.wantAnswer("the one at work")
			attacker := r.enter()
			if i%2 == 0 {
				_, _ = io.WriteString(attacker, "GET / HTTP/1.1\r\nX-Slow: ")
			}
			r.wantCounts(min(i+2, 3), max(0, i-1)) // it was accepted
		}
	})
}

func TestARequestUnderWayIsNeverCutOff(t *testing.T) {
	inBoth(t, func(r *room) {
		guests := []*guest{r.enter(), r.enter(), r.enter()}
		for _, g := range guests {
			g.ask("/stay")
			<-r.staying
		}
		late := r.enter()
		_, _ = io.WriteString(late, "GET /") // a TLS client says nothing before it has to
		late.wantClosed("the one too many")
		close(r.end)
		for _, g := range guests {
			g.wantAnswer("one that was there")
			_ = g.Close()
		}
		r.wantCounts(0, 1)
	})
}
