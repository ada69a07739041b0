package dispatcher

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

// receiver is the endpoints of all merchants. It answers each event with 204 at once, and remembers it.
type receiver struct {
	mu          sync.Mutex
	received    []delivery
	connections int
	distinct    map[string]bool // by webhook-id
}

// delivery is one POST of an event.
type delivery struct {
	URL    string            `json:"url"`
	Header map[string]string `json:"header"`
	Body   string            `json:"body"`
	Lag    time.Duration     `json:"lag"` // from the timestamp of the event to its arrival
}

// start serves an address for each merchant, and returns them.
func (r *receiver) start(ctx context.Context, f *fixture.Fixture) (addresses []string) {
	r.reset()
	server := &http.Server{Handler: r, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.mu.Lock()
			r.connections++
			r.mu.Unlock()
		}
	}}
	f.OnStop(server.Close)
	for range merchants {
		listener := fixture.Must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
		go func() { _ = server.Serve(listener) }() // until the server is closed
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	now := time.Now()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the connection has ended, and the event comes again
	}
	d := delivery{URL: "http://" + request.Host + request.URL.Path, Header: map[string]string{}, Body: string(body)}
	for name, values := range request.Header {
		d.Header[name] = values[0]
	}
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

// counts are of different events, and of connections that were opened.
func (r *receiver) counts() (events, connections int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.distinct), r.connections
}

// await waits until that many different events have arrived.
func (r *receiver) await(ctx context.Context, events int) {
	fixture.Check(fixture.Eventually(ctx, func() error {
		if arrived, _ := r.counts(); arrived < events {
			return fmt.Errorf("of %d events %d arrived", events, arrived)
		}
		return nil
	}))
}

const postCommand = "post"

// PostCommand is what this benchmark starts as the floor.
func PostCommand() *cobra.Command {
	return &cobra.Command{
		Use: postCommand, Short: "Post events, for bench dispatcher", Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fixture.Try(func() { post(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()) })
		},
	}
}

// post is the floor: it reads deliveries, and posts the same bytes to the same endpoints, as many at a time. It has no Redis, signs
// nothing and does not check where a connection goes. It writes a line when it is ready, posts when it reads another one, writes
// a line at the end, and waits for ctx to end: what it has used can only be read as long as it is there.
func post(ctx context.Context, in io.Reader, out io.Writer) {
	lines := bufio.NewReader(in)
	var events []delivery
	fixture.Check(json.Unmarshal(fixture.Must(lines.ReadBytes('\n')), &events))
	byEndpoint := map[string]chan delivery{}
	for _, event := range events {
		if byEndpoint[event.URL] == nil {
			byEndpoint[event.URL] = make(chan delivery, len(events))
		}
		byEndpoint[event.URL] <- event
	}
	runtime.GC() // what was read is not part of what is measured
	fmt.Fprintln(out, "ready")
	fixture.Must(lines.ReadString('\n'))
	// The settings of the dispatcher's transport that cost or save something, and its bound of an attempt.
	client := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{
		ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConns: 1024, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10,
	}}
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
	fixture.Check(workers.Wait())
	fmt.Fprintln(out, "done")
	<-ctx.Done()
}

func postOne(ctx context.Context, client *http.Client, event delivery) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, event.URL, strings.NewReader(event.Body))
	if err != nil {
		return err
	}
	for name, value := range event.Header {
		request.Header.Set(name, value)
	}
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
