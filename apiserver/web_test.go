package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

func TestPreflight(t *testing.T) {
	t.Parallel()
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

func TestCORS(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	const exposed = "Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, Idempotency-Mismatch, Customer-Email-Ignored, " +
		"Session-Currency, Session-Expires-In, Error-Code, Ignored-Fields, Link"
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

	MerchantID string `json:"merchantID"`
	KeyID      string `json:"keyID"`
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

func TestRequestLog(t *testing.T) {
	t.Parallel()
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
	if got[0].KeyID != key[8:20] || got[0].MerchantID == "" || !strings.HasPrefix(id, "ps_"+got[0].MerchantID) {
		t.Errorf("the key %s of the merchant of %s is logged as %+v", key[8:20], id, got[0])
	}
	if got[1].KeyID != "" {
		t.Errorf("a payer's request has the key %s", got[1].KeyID)
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

func TestRequestLog_Off(t *testing.T) {
	t.Parallel()
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

func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for _, operation := range append(operations(t, "openapi.yaml"), "GET /nothing", "DELETE /api/v1/sessions", "OPTIONS /api/v1/sessions") {
		method, path, _ := strings.Cut(operation, " ")
		for _, presented := range []string{"", key + "x", key} {
			got := r.call(method, strings.ReplaceAll(path, "{sessionId}", "ps_00"), presented, "{}")
			if sniff := got.header.Get("X-Content-Type-Options"); sniff != "nosniff" {
				t.Errorf("%s: %d has X-Content-Type-Options %q", operation, got.status, sniff)
			}
			if kept := got.header.Get("Cache-Control"); kept != "no-store" && path != "/openapi.yaml" && path != page.WidgetPath {
				t.Errorf("%s: %d has Cache-Control %q", operation, got.status, kept)
			}
			for _, telling := range []string{"Server", "X-Powered-By", "Set-Cookie", "Access-Control-Allow-Credentials"} {
				if got.header.Get(telling) != "" {
					t.Errorf("%s: %d has %s", operation, got.status, telling)
				}
			}
			if got.status == http.StatusOK && strings.HasSuffix(path, "/rotate") {
				key = got.text("fullKey")
			}
		}
	}
}

// raw sends bytes as they are and returns the answer and whether the connection was closed after it.
func (r *replica) raw(t *testing.T, request string) (result, bool) {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := read(t, response)
	if !response.Close {
		return got, false
	}
	_, err = reader.ReadByte()
	return got, errors.Is(err, io.EOF)
}

// What net/http itself refuses has the shape of all errors, too.
func TestMalformedHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	post := func(headers string) string {
		return "POST " + sessions + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\n" + headers + "\r\n"
	}
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"a control character in Idempotency-Key": {post("Idempotency-Key: a\x01b\r\nContent-Length: 0\r\n"), 400},
		"NUL in a header":                        {post("Idempotency-Key: a\x00b\r\n"), 400},
		"a bare CR in a header":                  {post("Idempotency-Key: a\rb\r\n"), 400},
		"a blank in a header's name":             {post("Idempotency Key: a\r\n"), 400},
		"no Host":                                {"GET / HTTP/1.1\r\n\r\n", 400},
		"two Hosts":                              {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		"no HTTP at all":                         {"hello\r\n\r\n", 400},
		"another version":                        {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505},
		"too large a header":                     {post("X: " + strings.Repeat("x", 24<<10) + "\r\n"), 431},
		"two lengths":                            {post("Content-Length: 1\r\nContent-Length: 2\r\n"), 400},
		"a negative length":                      {post("Content-Length: -1\r\n"), 400},
		"an unknown transfer encoding":           {post("Transfer-Encoding: gzip\r\n"), 501},
		"a bad escape in the path":               {"GET " + sessions + "/%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			got, closed := r.raw(t, test.request)
			got.want(t, test.status)
			if !strings.HasPrefix(got.text("error"), http.StatusText(test.status)) || len(got.body) != 1 {
				t.Errorf("not in the shape of all errors: %s", got.raw)
			}
			if !closed || got.header.Get("Content-Type") != "application/json" || got.header.Get("Cache-Control") != "no-store" {
				t.Errorf("closed %v, headers %v", closed, got.header)
			}
		})
	}
}

// No client library sends these.
func TestUnusualHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	const body = `{"amountCents":1}`
	authorized := "Host: x\r\nAuthorization: Bearer " + key + "\r\n"
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"OPTIONS *":              {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		"CONNECT":                {"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		"an absolute URL":        {"GET http://elsewhere" + me + " HTTP/1.1\r\n" + authorized + "\r\n", 200},
		"HTTP/1.0":               {"GET " + me + " HTTP/1.0\r\n" + authorized + "\r\n", 200},
		"a chunked body":         {"POST " + sessions + " HTTP/1.1\r\n" + authorized + "Transfer-Encoding: chunked\r\n\r\n11\r\n" + body + "\r\n0\r\n\r\n", 201},
		"a broken chunk":         {"POST " + sessions + " HTTP/1.1\r\n" + authorized + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		"a folded header":        {"GET " + me + " HTTP/1.1\r\nHost: x\r\nAuthorization:\r\n Bearer " + key + "\r\n\r\n", 200},
		"a path without a slash": {"GET api/v1/merchant/me HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		"a fragment":             {"GET " + me + "#x HTTP/1.1\r\n" + authorized + "\r\n", 404},
		"a header in Latin-1":    {"POST " + sessions + " HTTP/1.1\r\n" + authorized + "Idempotency-Key: \xe4\r\nContent-Length: 17\r\n\r\n" + body, 400},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := r.raw(t, test.request)
			got.want(t, test.status)
			if test.status >= 400 && got.text("error") == "" {
				t.Errorf("not in the shape of all errors: %s", got.raw)
			}
		})
	}
}

func TestOversizedBody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	got := r.call(http.MethodPost, sessions, key, strings.Repeat(" ", 4<<20))
	got.wantError(t, http.StatusBadRequest, "body is larger than 16 KiB")
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}
