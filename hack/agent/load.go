package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// loadSpec is a load to keep up: charges at a steady rate, each of which is read again with the key and without.
type loadSpec struct {
	// URL is the API's, without a path.
	URL string `json:"url"`
	Key string `json:"key"`
	// PerSecond is how many charges are begun in a second; each makes three requests.
	PerSecond int `json:"perSecond"`
}

// loadReport counts requests.
type loadReport struct {
	Requests int `json:"requests"`
	Failed   int `json:"failed"`
	// Failures are the first of them, in words.
	Failures []string `json:"failures,omitempty"`
	// SlowestMillis is the longest that an answer took, in milliseconds.
	SlowestMillis int64 `json:"slowestMillis"`
}

// load is at most one load at a time. The zero load is none.
type load struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}
	so     loadReport
}

func (l *load) start(w http.ResponseWriter, r *http.Request) {
	var spec loadSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil || spec.PerSecond < 1 {
		http.Error(w, "a load wants url, key and perSecond", http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		http.Error(w, "there is a load already", http.StatusConflict)
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // until it is stopped
	l.cancel, l.done, l.so = cancel, make(chan struct{}), loadReport{}
	go l.keepUp(ctx, spec, l.done)
}

func (l *load) report(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reply(w, l.so)
}

// stop begins no more charges, waits for those under way, and reports.
func (l *load) stop(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	cancel, done := l.cancel, l.done
	l.cancel = nil
	l.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
	l.report(w, r)
}

func (l *load) keepUp(ctx context.Context, spec loadSpec, done chan<- struct{}) {
	defer close(done)
	// One caller keeps its connections, and notices how they are closed; the other makes new ones, and notices where
	// there is nobody to take them.
	callers := []*http.Client{
		{Timeout: 10 * time.Second},
		{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	ticker := time.NewTicker(time.Second / time.Duration(spec.PerSecond))
	defer ticker.Stop()
	var underWay sync.WaitGroup
	defer underWay.Wait()
	for begun := 0; ; begun++ {
		client := callers[begun%len(callers)]
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			underWay.Go(func() { l.charge(context.WithoutCancel(ctx), client, spec) })
		}
	}
}

// charge makes a session and reads it as its merchant and as its payer.
func (l *load) charge(ctx context.Context, client *http.Client, spec loadSpec) {
	var session struct{ SessionID string }
	create, err := request(ctx, http.MethodPost, spec, "/api/v1/sessions", `{"amountCents": 1250}`)
	if err == nil {
		create.Header.Set("Idempotency-Key", rand.Text())
		err = l.count(client, create, http.StatusCreated, &session)
	}
	if err != nil {
		return // and counted
	}
	for _, path := range []string{"/api/v1/sessions/", "/api/v1/public/sessions/"} {
		if read, err := request(ctx, http.MethodGet, spec, path+session.SessionID, ""); err == nil {
			_ = l.count(client, read, http.StatusOK, nil) // which remembers it
		}
	}
}

func request(ctx context.Context, method string, spec loadSpec, path, body string) (*http.Request, error) {
	made, err := http.NewRequestWithContext(ctx, method, spec.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	made.Header.Set("Authorization", "Bearer "+spec.Key)
	return made, nil
}

// count makes a request, and counts it as failed when it has another status than the one that is wanted, or none.
func (l *load) count(client *http.Client, request *http.Request, want int, into any) error {
	begin := time.Now()
	err := exchangeFor(client, request, want, into)
	took := time.Since(begin).Milliseconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.so.Requests++
	l.so.SlowestMillis = max(l.so.SlowestMillis, took)
	if err != nil {
		l.so.Failed++
		if len(l.so.Failures) < 20 {
			l.so.Failures = append(l.so.Failures, fmt.Sprintf("%s %s %s: %v", begin.UTC().Format("15:04:05.000"), request.Method, request.URL.Path, err))
		}
	}
	return err
}

func exchangeFor(client *http.Client, request *http.Request, want int, into any) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != want {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}
