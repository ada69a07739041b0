package dispatcher

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

// receiver serves the endpoints of all merchants. It answers each event with 204 at once, and records it.
type receiver struct {
	mu          sync.Mutex
	received    []delivery
	connections int
	distinct    map[string]bool          // by webhook-id
	slow        map[string]time.Duration // hosts that answer after this time, and whose events are not recorded
	released    chan struct{}            // they answer no more
}

// delivery is one POST of an event.
type delivery struct {
	URL    string        `json:"url"`
	Header http.Header   `json:"header"`
	Body   string        `json:"body"`
	Lag    time.Duration `json:"lag"` // from the event's timestamp to its arrival
}

// start serves so many addresses, with TLS if it is configured, and returns them.
func (r *receiver) start(ctx context.Context, f *fixture.Fixture, count int, config *tls.Config) (addresses []string) {
	r.reset()
	server := &http.Server{Handler: r, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.mu.Lock()
			r.connections++
			r.mu.Unlock()
		}
	}}
	f.OnStop(server.Close)
	for range count {
		listener := fixture.Must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
		if config != nil {
			listener = tls.NewListener(listener, config)
		}
		go func() { _ = server.Serve(listener) }() // until the server is closed
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	now := time.Now()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the connection was closed; the event will be repeated
	}
	if after, released := r.slowness(request.Host); after > 0 {
		select {
		case <-request.Context().Done(): // its timeout
		case <-released:
		case <-time.After(after):
			w.WriteHeader(http.StatusNoContent)
		}
		return
	}
	scheme := "http://"
	if request.TLS != nil {
		scheme = "https://"
	}
	d := delivery{URL: scheme + request.Host + request.URL.Path, Header: request.Header, Body: string(body)}
	var event struct {
		Timestamp time.Time `json:"timestamp"`
	}
	if err := json.Unmarshal(body, &event); err == nil {
		d.Lag = now.Sub(event.Timestamp)
	}
	r.mu.Lock()
	r.received = append(r.received, d)
	r.distinct[request.Header.Get("webhook-id")] = true
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// slowDown makes hosts answer after a time. The returned function ends that.
func (r *receiver) slowDown(hosts []string, after time.Duration) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow, r.released = map[string]time.Duration{}, make(chan struct{})
	for _, host := range hosts {
		r.slow[host] = after
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.slow = nil
		close(r.released)
	}
}

// slowness returns after what time a host answers, and what ends that; 0: at once.
func (r *receiver) slowness(host string) (after time.Duration, released <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slow[host], r.released
}

func (r *receiver) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received, r.connections, r.distinct = nil, 0, map[string]bool{}
}

func (r *receiver) deliveries() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.received)
}

// counts returns the numbers of distinct events, and of connections that were opened.
func (r *receiver) counts() (events, connections int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.distinct), r.connections
}

// await waits until so many distinct events have arrived.
func (r *receiver) await(ctx context.Context, events int) {
	fixture.Check(fixture.Eventually(ctx, func() error {
		if arrived, _ := r.counts(); arrived < events {
			return fmt.Errorf("%[2]d of %[1]d events have arrived", events, arrived)
		}
		return nil
	}))
}

// testTLS returns the configuration of receivers whose certificate all processes trust that are started later.
func testTLS(f *fixture.Fixture) *tls.Config {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close()
	authority := filepath.Join(f.Directory, "ca.pem")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	fixture.Check(os.WriteFile(authority, encoded, 0o600))
	fixture.Check(os.Setenv("SSL_CERT_FILE", authority))
	return &tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12}
}

const postCommand = "post"

// PostCommand is the floor.
func PostCommand() *cobra.Command { return fixture.Helper(postCommand, post) }

// floorResult is what the floor took, not including its input and the events that open its connections.
type floorResult struct {
	Events int           `json:"events"`
	Took   time.Duration `json:"took"`
	CPU    time.Duration `json:"cpu"`
}

// post reads deliveries, posts the same bytes to the same endpoints with the same concurrency, and prints a floorResult. It has no
// Redis, signs nothing and does not check addresses.
func post(ctx context.Context, in io.Reader, out io.Writer) {
	var events []delivery
	fixture.Check(json.NewDecoder(in).Decode(&events))
	// The settings of the dispatcher's transport that affect its cost, and its timeout.
	client := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{
		DisableCompression: true,
		MaxIdleConns:       1024, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10,
	}}
	opening := len(events) / 10
	fixture.Check(postAll(ctx, client, events[:opening]))
	runtime.GC()
	cpu, started := fixture.CPU(os.Getpid()), time.Now()
	fixture.Check(postAll(ctx, client, events[opening:]))
	fixture.Check(json.NewEncoder(out).Encode(floorResult{len(events) - opening, time.Since(started), fixture.CPU(os.Getpid()) - cpu}))
}

func postAll(ctx context.Context, client *http.Client, events []delivery) error {
	byEndpoint := map[string]chan delivery{}
	for _, event := range events {
		if byEndpoint[event.URL] == nil {
			byEndpoint[event.URL] = make(chan delivery, len(events))
		}
		byEndpoint[event.URL] <- event
	}
	var workers errgroup.Group
	for _, events := range byEndpoint {
		close(events)
		for range perEndpoint {
			workers.Go(func() error {
				for event := range events {
					if err := postOne(ctx, client, event); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return workers.Wait()
}

func postOne(ctx context.Context, client *http.Client, event delivery) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, event.URL, strings.NewReader(event.Body))
	if err != nil {
		return err
	}
	request.Header = event.Header
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("%s answered %s", event.URL, answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
