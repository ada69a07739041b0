// Package roomtest gives the tests of one room of the API what the other parts give it: a store on a real Redis, a directory of merchants and
// keys that the test publishes, the gate, and the API's response to each error. There is no Kubernetes: accounts are what the test says.
package roomtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// Replica has what a room of one replica is made of. Its room is served after Serve.
type Replica struct {
	*storetest.Services

	Directory *directory.Directory
	Gate      *caller.Gate
	Registry  *prometheus.Registry
	Log       *slog.Logger
	Logged    logtest.Buffer

	t        testing.TB
	metrics  *web.Metrics
	handler  http.Handler
	document openapitest.Document
}

// New returns a replica on a Redis, which knows no merchant and no key.
func New(t testing.TB, redisURL string) *Replica {
	t.Helper()
	r := &Replica{Services: storetest.New(t, redisURL), Registry: prometheus.NewRegistry(), t: t}
	r.metrics = web.NewMetrics(r.Registry)
	r.Log = slog.New(slog.NewJSONHandler(&r.Logged, nil))
	r.Directory = directory.New(directory.Options{Log: r.Log, Registerer: r.Registry, KeyHandler: noOverrides{}, Now: time.Now})
	clients, err := clientaddr.NewResolver(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Gate = caller.NewGate(caller.GateOptions{
		Directory: r.Directory, Admitter: r.Admitter, Keys: r.Keys, Redis: r.Client, Blocked: r.Blocked, Clients: clients, Reasons: caller.NewReasons(r.Registry),
		Now: time.Now, Log: r.Log, Registerer: r.Registry,
	})
	return r
}

// noOverrides writes no override: a room is one replica, which knows every key that is published.
type noOverrides struct{ directory.KeyHandler }

// KeyUnverified is called for each published key.
func (noOverrides) KeyUnverified(published.KeyRecord) {}

// KeyEnded is called for each key whose ApiKey is deleted.
func (noOverrides) KeyEnded(published.KeyRecord, time.Time) {}

// KeyUpdated is called for each key that is rotated.
func (noOverrides) KeyUpdated(_ published.KeyRecord, written func()) { written() }

// Report has a rail report a payment of a live session.
func (r *Replica) Report(id string, payment session.Payment) {
	r.t.Helper()
	parsed, err := session.ParseID(id)
	storetest.Must(r.t, err)
	_, err = r.Settle(r.t.Context(), parsed, payment)
	storetest.Must(r.t, err)
}

// Serve serves routes of one listener, and no more those of an earlier call. Each response is checked against the document.
func (r *Replica) Serve(file string, routes web.Routes) {
	r.document = openapitest.NewDocument(file)
	options := web.Options{
		Log: r.Log, Draining: func() bool { return false }, Answer: apiserver.Answer, Finished: r.Gate.Finished,
		Trusted: func(*http.Request) bool { return false }, CrossOrigin: map[string]string{openapitest.Public: "/api/v1/"}[file],
	}
	r.handler = web.New(options, r.metrics, routes)
}

// Hub runs what watches sessions and feeds, until the test ends. change edits its options, with
// which nothing is read but after a message.
func (r *Replica) Hub(change ...func(*live.Options)) *live.Hub {
	r.t.Helper()
	options := live.Options{
		Read: r.WatchedSession, Interval: time.Hour, MaxWatches: 1000, MaxWatchesPerAddress: 1000, Log: r.Log, Registerer: r.Registry,
	}
	for _, c := range change {
		c(&options)
	}
	hub := live.New(r.Client, options)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	r.t.Cleanup(func() { cancel(); running.Wait() })
	return hub
}

// AsAccount serves a handler to whoever names its account as the token.
func AsAccount(next caller.AccountHandler) web.Handler {
	return func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
		return next(e, w, r, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}
}

// Result is a response as its client sees it.
type Result struct {
	Status int
	Header http.Header
	Raw    []byte
	Body   map[string]any // nil unless it is a JSON object
}

// Call sends one request and checks the response against the document. bearer is an API key or the name of an account, headers are pairs
// of name and value.
func (r *Replica) Call(method, path, bearer, body string, headers ...string) Result {
	r.t.Helper()
	return r.Do(r.NewRequest(method, path, bearer, body, headers...))
}

// NewRequest returns a request for Do.
func (r *Replica) NewRequest(method, path, bearer, body string, headers ...string) *http.Request {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.RemoteAddr = "192.0.2.1:1234"
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return request
}

// ServeHTTP serves a request without a check of the response.
func (r *Replica) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.handler.ServeHTTP(w, request)
}

// Recorder records a response. Requests that wait set a deadline, which it ignores.
type Recorder struct{ *httptest.ResponseRecorder }

// NewRecorder returns a Recorder.
func NewRecorder() Recorder { return Recorder{httptest.NewRecorder()} }

// SetReadDeadline does nothing.
func (Recorder) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (Recorder) SetWriteDeadline(time.Time) error { return nil }

// Do is Call for a request that the test has made.
func (r *Replica) Do(request *http.Request) Result {
	r.t.Helper()
	recorder := NewRecorder()
	r.ServeHTTP(recorder, request)
	return r.result(request, Result{Status: recorder.Code, Header: recorder.Result().Header, Raw: recorder.Body.Bytes()})
}

// Received is Do for a response that came over a connection.
func (r *Replica) Received(response *http.Response) Result {
	r.t.Helper()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.result(response.Request, Result{Status: response.StatusCode, Header: response.Header, Raw: raw})
}

// result decodes a response, and checks it against the document.
func (r *Replica) result(request *http.Request, got Result) Result {
	r.t.Helper()
	if bytes.HasPrefix(got.Raw, []byte("{")) {
		if err := json.Unmarshal(got.Raw, &got.Body); err != nil {
			r.t.Fatalf("status %d with a body that is no JSON: %s", got.Status, got.Raw)
		}
	}
	r.document.Check(r.t, request, got.Status, got.Header, got.Raw)
	return got
}

// Metric returns the value of a metric, which is named with its labels; empty: there is none.
func (r *Replica) Metric(name string) string {
	r.t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(r.Metrics())
	if found == nil {
		return ""
	}
	return found[1]
}

// Metrics returns all metrics, as they are scraped.
func (r *Replica) Metrics() string {
	r.t.Helper()
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(r.Registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequestWithContext(r.t.Context(), http.MethodGet, "/metrics", http.NoBody))
	return recorder.Body.String()
}

// Want fails the test unless the response has the status.
func (a Result) Want(t testing.TB, status int) Result {
	t.Helper()
	if a.Status != status {
		t.Fatalf("status %d, want %d: %s", a.Status, status, a.Raw)
	}
	return a
}

// WantError fails the test unless the response is this error.
func (a Result) WantError(t testing.TB, status int, message string) {
	t.Helper()
	if a.Want(t, status).Body["error"] != message {
		t.Errorf("error %q, want %q", a.Body["error"], message)
	}
}

// WantCode fails the test unless the response is an error with this Error-Code.
func (a Result) WantCode(t testing.TB, status int, code string) Result {
	t.Helper()
	if got := a.Want(t, status).Header.Get("Error-Code"); got != code {
		t.Errorf("Error-Code %q, want %q: %s", got, code, a.Raw)
	}
	return a
}

// Text returns a field of the body.
func (a Result) Text(field string) string {
	text, _ := a.Body[field].(string)
	return text
}
