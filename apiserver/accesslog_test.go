package apiserver_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

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
		t.Errorf("a believed proxy called it edge-0815, we %s, and the answer %s", got[1].RequestID, seen.header.Get("X-Request-Id"))
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
	if found := entries(t, log); len(found) != 0 || answer.header.Get("X-Request-Id") != "" {
		t.Errorf("logged %+v, and answered with the id %q", found, answer.header.Get("X-Request-Id"))
	}
}
