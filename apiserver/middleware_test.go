package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

func TestPreflight(t *testing.T) {
	r := newFixture(t).start()
	for _, path := range []string{
		sessions, sessions + "/ps_aaaaaaaaaaaa000000000000000000", sessions + "/x/cancel", public + "/x", me, rotate, "/api/v1/nothing", "/api/v1/",
	} {
		got := r.call(http.MethodOptions, path, "", "",
			"Origin", "https://shop.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
		got.want(t, http.StatusNoContent)
		for name, want := range map[string]string{
			"Access-Control-Allow-Origin":  "*",
			"Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key",
			"Access-Control-Allow-Methods": "GET, POST, OPTIONS",
			"Access-Control-Max-Age":       "86400",
		} {
			if got.header.Get(name) != want {
				t.Errorf("%s: %s %q, want %q", path, name, got.header.Get(name), want)
			}
		}
		if len(got.raw) > 0 {
			t.Errorf("%s: a body: %s", path, got.raw)
		}
	}
	for path, want := range map[string]int{"/": 404, "/api/v1": 404, "/openapi.yaml": 405} {
		if got := r.call(http.MethodOptions, path, "", "").want(t, want); got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s is open to browsers", path)
		}
	}
}

func TestBrowsersMayReadTheAnswers(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	const exposed = "Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, Idempotency-Mismatch, Session-Expires-In, " +
		"Error-Code, Ignored-Fields, Link"
	for _, got := range []result{
		r.call(http.MethodGet, public+"/"+id, "", "", "Origin", "https://shop.example"),
		r.call(http.MethodGet, public+"/x", "", "", "Origin", "https://shop.example"),
		r.call(http.MethodPost, sessions, "", "", "Origin", "https://shop.example"),
		r.call(http.MethodPost, sessions, key, `{`, "Origin", "https://shop.example"),
		r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "", "Origin", "https://shop.example"),
		r.call(http.MethodDelete, sessions, "", "", "Origin", "https://shop.example"),
		r.call(http.MethodGet, "/api/v1/nothing", "", "", "Origin", "https://shop.example"),
	} {
		if got.header.Get("Access-Control-Allow-Origin") != "*" || got.header.Get("Access-Control-Allow-Credentials") != "" ||
			got.header.Get("Access-Control-Expose-Headers") != exposed {
			t.Errorf("status %d: headers %v", got.status, got.header)
		}
	}
	other := r.call(http.MethodGet, public+"/"+id, "", "")
	if other.header.Get("Access-Control-Allow-Origin") != "*" || other.header.Get("Access-Control-Expose-Headers") != "" {
		t.Errorf("to who is no browser: headers %v", other.header)
	}
}

// logged is one entry about a request.
type logged struct {
	Level     string `json:"level"`
	Msg       string `json:"msg"`
	Method    string `json:"method"`
	Route     string `json:"route"`
	RequestID string `json:"requestID"`
	Status    int    `json:"status"`
	Duration  int64  `json:"duration"`
}

// entries are those about requests in a log that keeps INFO and above.
func entries(t *testing.T, log *logtest.Buffer) []logged {
	t.Helper()
	var found []logged
	for line := range strings.Lines(log.String()) {
		var entry logged
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if entry.Msg == "request" {
			found = append(found, entry)
		}
	}
	return found
}

// identified sends a request through a proxy that calls it by an id. The answer has a header that the OpenAPI document does
// not know, for it depends on how the platform runs the API.
func (r *replica) identified(method, path, key, body, id string) result {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("X-Request-Id", id)
	request.Header.Set("X-Forwarded-For", "203.0.113.9")
	received, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = received.Body.Close() }()
	a := result{status: received.StatusCode, header: received.Header}
	if err := json.NewDecoder(received.Body).Decode(&a.body); err != nil {
		r.t.Fatal(err)
	}
	return a
}

func TestEachRequestCanBeLoggedWithoutEverythingElse(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	log := &logtest.Buffer{}
	r := f.start(trustLoopback, func(o *apiserver.Options) {
		o.AccessLog = true
		o.Log = slog.New(fanOut{o.Log.Handler(), slog.NewJSONHandler(log, nil)})
	})
	created := r.identified(http.MethodPost, sessions, key, `{"amountCents": 1, "orderRef": "jane@example.com"}`, "")
	id := created.text("sessionId")
	seen := r.identified(http.MethodGet, public+"/"+id+"?payer=jane", "", "", "edge-0815")
	odd := r.identified("INVENTED", public+"/"+id, "", "", "not an id: "+id)

	got := entries(t, log)
	if len(got) != 3 {
		t.Fatalf("%d entries about 3 requests:\n%s", len(got), log)
	}
	for i, want := range []logged{
		{Method: "POST", Route: sessions, Status: http.StatusCreated},
		{Method: "GET", Route: public + "/{id}", Status: http.StatusOK},
		{Method: "other", Route: public + "/{id}", Status: http.StatusMethodNotAllowed},
	} {
		if got[i].Level != "INFO" || got[i].Method != want.Method || got[i].Route != want.Route || got[i].Status != want.Status || got[i].Duration <= 0 {
			t.Errorf("logged %+v, want %+v", got[i], want)
		}
	}
	if got[1].RequestID != "edge-0815" || seen.header.Get("X-Request-Id") != "edge-0815" {
		t.Errorf("a trusted proxy sent the id edge-0815; the log has %s, the response %s", got[1].RequestID, seen.header.Get("X-Request-Id"))
	}
	if fresh := odd.header.Get("X-Request-Id"); fresh == "" || fresh != got[2].RequestID {
		t.Errorf("the answer has the id %q, the log %q", fresh, got[2].RequestID)
	}
	for _, secret := range []string{id, "jane", "203.0.113", "INVENTED", "not an id", key} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds %q:\n%s", secret, log)
		}
	}
}

func TestRequestsAreNotLoggedUnlessAskedFor(t *testing.T) {
	f := newFixture(t)
	log := &logtest.Buffer{}
	r := f.start(func(o *apiserver.Options) { o.Log = slog.New(fanOut{o.Log.Handler(), slog.NewJSONHandler(log, nil)}) })
	answer := r.call(http.MethodGet, me, "", "", "X-Request-Id", "mine")
	answer.want(t, http.StatusUnauthorized)
	if found := entries(t, log); len(found) != 0 {
		t.Errorf("logged %+v", found)
	}
	if id := answer.header.Get("X-Request-Id"); id == "" || id == "mine" {
		t.Errorf("answered with the id %q, want one of our own", id)
	}
}

// fanOut hands each entry to two handlers, each with its own level: the harness wants all, and a test what people would see.
type fanOut struct{ all, seen slog.Handler }

func (f fanOut) Enabled(ctx context.Context, level slog.Level) bool {
	return f.all.Enabled(ctx, level) || f.seen.Enabled(ctx, level)
}

func (f fanOut) Handle(ctx context.Context, record slog.Record) error {
	err := f.all.Handle(ctx, record)
	if f.seen.Enabled(ctx, record.Level) {
		err = errors.Join(err, f.seen.Handle(ctx, record))
	}
	return err
}

func (f fanOut) WithAttrs(attributes []slog.Attr) slog.Handler {
	return fanOut{f.all.WithAttrs(attributes), f.seen.WithAttrs(attributes)}
}

func (f fanOut) WithGroup(name string) slog.Handler {
	return fanOut{f.all.WithGroup(name), f.seen.WithGroup(name)}
}
