package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// loadSpec is a steady load: sessions are created, and each is read with the API key and without.
type loadSpec struct {
	// URL is the API's, without a path.
	URL string `json:"url"`
	Key string `json:"key"`
	// PerSecond is the number of sessions created per second; each makes three requests.
	PerSecond int `json:"perSecond"`
}

type loadReport struct {
	Requests int `json:"requests"`
	Failed   int `json:"failed"`
	// Failures describe the first failed requests.
	Failures      []string `json:"failures,omitempty"`
	SlowestMillis int64    `json:"slowestMillis"`
}

// load is at most one load at a time.
type load struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil: there is none
	done   chan struct{}
	report loadReport
}

func (l *load) start(w http.ResponseWriter, r *http.Request) {
	var spec loadSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil || spec.PerSecond < 1 {
		http.Error(w, "send url, key and perSecond (at least 1)", http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		http.Error(w, "a load runs already; DELETE it first", http.StatusConflict)
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // it outlives this request
	l.cancel, l.done, l.report = cancel, make(chan struct{}), loadReport{}
	go l.run(ctx, spec, l.done)
}

func (l *load) get(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	writeJSON(w, l.report)
}

// stop waits for the requests in progress, and reports.
func (l *load) stop(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	cancel, done := l.cancel, l.done
	l.cancel = nil
	l.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	l.get(w, r)
}

func (l *load) run(ctx context.Context, spec loadSpec, done chan<- struct{}) {
	defer close(done)
	// One client keeps its connections and notices how they are closed. The other opens new ones and notices if nobody accepts.
	clients := []*http.Client{
		{Timeout: 10 * time.Second},
		{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	ticker := time.NewTicker(time.Second / time.Duration(spec.PerSecond))
	defer ticker.Stop()
	var charges sync.WaitGroup
	defer charges.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			charges.Go(func() { l.charge(context.WithoutCancel(ctx), clients[n%len(clients)], spec) })
		}
	}
}

// charge creates a session, and reads it as its merchant and as its payer.
func (l *load) charge(ctx context.Context, client *http.Client, spec loadSpec) {
	headers := map[string]string{"Authorization": "Bearer " + spec.Key, "Idempotency-Key": rand.Text()}
	created := l.send(ctx, client, http.StatusCreated, request{
		Method: http.MethodPost, URL: spec.URL + "/api/v1/sessions", Headers: headers, Body: `{"amountCents": 1250}`,
	})
	var session struct {
		SessionID string `json:"sessionId"`
	}
	if json.Unmarshal([]byte(created.Body), &session) != nil || session.SessionID == "" {
		return // counted as failed
	}
	for _, path := range []string{"/api/v1/sessions/", "/api/v1/public/sessions/"} {
		l.send(ctx, client, http.StatusOK, request{Method: http.MethodGet, URL: spec.URL + path + session.SessionID, Headers: headers})
	}
}

// send counts the request as failed if the response does not have the expected status.
func (l *load) send(ctx context.Context, client *http.Client, want int, r request) response {
	begin := time.Now()
	got := r.send(ctx, client)
	took := time.Since(begin).Milliseconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Requests++
	l.report.SlowestMillis = max(l.report.SlowestMillis, took)
	if got.Status != want {
		l.report.Failed++
		if len(l.report.Failures) < 20 {
			l.report.Failures = append(l.report.Failures, fmt.Sprintf("%s %s %s: status %d %s%s",
				begin.UTC().Format("15:04:05.000"), r.Method, r.URL, got.Status, got.Error, got.Body))
		}
	}
	return got
}
