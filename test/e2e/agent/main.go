// Command agent acts for the end-to-end tests inside the cluster: it makes requests as a till or a payer's browser does, keeps
// up a steady load and counts failures, receives webhooks, and forwards connections. The tests control it through the
// Kubernetes API's proxy to pods, so they need no route into the cluster's network.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) == 3 && args[0] == "forward":
		return forward(ctx, args[1], args[2])
	default:
		return errors.New("usage: agent serve ADDRESS | agent forward ADDRESS TARGET")
	}
}

func serve(ctx context.Context, address string) error {
	var load load
	var webhooks webhooks
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /do", do)
	mux.HandleFunc("POST /load", load.start)
	mux.HandleFunc("GET /load", load.get)
	mux.HandleFunc("DELETE /load", load.stop)
	mux.HandleFunc("POST /hooks", webhooks.receive)
	mux.HandleFunc("GET /hooks", webhooks.list)

	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// forward connects callers of address with target. All connections end with the process.
func forward(ctx context.Context, address, target string) error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "agent", address, target)
	if err := proxy.Start(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// request is an HTTP request, to send or as it was received.
type request struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

// response is what came back. Error says why nothing did, and is empty otherwise.
type response struct {
	Error   string      `json:"error,omitempty"`
	Status  int         `json:"status"`
	Headers http.Header `json:"headers,omitempty"`
	Body    string      `json:"body,omitempty"`
}

// do sends one request on a connection of its own, and answers with the response. It follows no redirect.
func do(w http.ResponseWriter, r *http.Request) {
	var sent request
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	dialer := net.Dialer{Timeout: 5 * time.Second} // a NetworkPolicy may drop packets
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       20 * time.Second,
	}
	writeJSON(w, sent.send(r.Context(), client))
}

func (r request) send(ctx context.Context, client *http.Client) response {
	sent, err := http.NewRequestWithContext(ctx, r.Method, r.URL, strings.NewReader(r.Body))
	if err != nil {
		return response{Error: err.Error()}
	}
	for name, value := range r.Headers {
		sent.Header.Set(name, value)
	}
	sent.Host = r.Headers["Host"] // empty: that of the URL
	received, err := client.Do(sent)
	if err != nil {
		return response{Error: err.Error()}
	}
	defer func() { _ = received.Body.Close() }()
	body, err := io.ReadAll(received.Body)
	if err != nil {
		return response{Error: err.Error()}
	}
	return response{Status: received.StatusCode, Headers: received.Header, Body: string(body)}
}

func firstValues(header http.Header) map[string]string {
	values := map[string]string{}
	for name := range header {
		values[name] = header.Get(name)
	}
	return values
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) //nolint:errchkjson // strings and numbers; and the client may be gone
}

// webhooks keeps every webhook that was received. The tests verify them.
type webhooks struct {
	mu       sync.Mutex
	received []request
}

func (h *webhooks) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.received = append(h.received, request{Method: r.Method, URL: r.URL.String(), Headers: firstValues(r.Header), Body: string(body)})
}

func (h *webhooks) list(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	writeJSON(w, h.received)
}
