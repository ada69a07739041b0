package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// receiver is the endpoints of all merchants. It answers each event with 204 at once, and remembers what came.
type receiver struct {
	mu       sync.Mutex
	events   []delivery
	dials    int
	distinct map[string]bool // by webhook-id
}

// delivery is one POST, as it came.
type delivery struct {
	URL    string            `json:"url"`
	Header map[string]string `json:"header"`
	Body   string            `json:"body"`
	// Lag is from the moment the event tells of to its arrival.
	Lag time.Duration `json:"lag"`
}

// seen is what a receiver has counted.
type seen struct {
	Events   int `json:"events"`
	Distinct int `json:"distinct"`
	Dials    int `json:"dials"`
}

// address is where a receiver serves: the endpoints, and another for the benchmark.
type address struct {
	Endpoints []string `json:"endpoints"`
	Control   string   `json:"control"`
}

// What the benchmark asks a receiver.
const (
	seenPath   = "/seen"   // how many
	eventsPath = "/events" // which
	forgetPath = "/forget"
)

// receive serves until ctx ends, on addresses of its own choice that it writes as a line.
func receive(ctx context.Context, out io.Writer) error {
	r := &receiver{distinct: map[string]bool{}}
	control := http.NewServeMux()
	control.HandleFunc("GET "+seenPath, r.tellSeen)
	control.HandleFunc("GET "+eventsPath, r.tellEvents)
	control.HandleFunc("POST "+forgetPath, r.forget)
	endpoints := &http.Server{Handler: http.HandlerFunc(r.take), ConnState: r.connection}
	controls := &http.Server{Handler: control}
	var where address
	var listeners []net.Listener
	for i := range merchants + 1 {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		listeners = append(listeners, listener)
		if i < merchants {
			where.Endpoints = append(where.Endpoints, listener.Addr().String())
		} else {
			where.Control = listener.Addr().String()
		}
	}
	ended := make(chan error, len(listeners))
	for i, listener := range listeners {
		server := endpoints
		if i == merchants {
			server = controls
		}
		go func() { ended <- server.Serve(listener) }()
	}
	if err := json.NewEncoder(out).Encode(where); err != nil {
		return err
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	return errors.Join(err, endpoints.Close(), controls.Close())
}

func (r *receiver) connection(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		r.mu.Lock()
		r.dials++
		r.mu.Unlock()
	}
}

func (r *receiver) take(w http.ResponseWriter, request *http.Request) {
	now := time.Now()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the connection has ended, and the event comes again
	}
	came := delivery{URL: "http://" + request.Host + request.URL.Path, Header: map[string]string{}, Body: string(body)}
	for name, values := range request.Header {
		came.Header[name] = values[0]
	}
	var told struct {
		Timestamp time.Time `json:"timestamp"`
	}
	if err := json.Unmarshal(body, &told); err == nil {
		came.Lag = now.Sub(told.Timestamp)
	}
	r.mu.Lock()
	r.events = append(r.events, came)
	r.distinct[request.Header.Get("webhook-id")] = true
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) tellSeen(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tell(w, seen{len(r.events), len(r.distinct), r.dials})
}

func (r *receiver) tellEvents(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tell(w, r.events)
}

func tell(w http.ResponseWriter, what any) {
	if err := json.NewEncoder(w).Encode(what); err != nil {
		panic(http.ErrAbortHandler) // ends this connection
	}
}

func (r *receiver) forget(http.ResponseWriter, *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.dials = nil, 0
	clear(r.distinct)
}
