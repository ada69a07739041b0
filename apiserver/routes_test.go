package apiserver_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestPathsThatAreNotThere(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for _, path := range []string{
		"/", "/nothing", "/api", "/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v2/sessions", "/API/v1/sessions",
		sessions + "/", "/" + sessions, "//api/v1//sessions", "/api/v1/./sessions", "/api/v1/x/../sessions", "/api/v1/sessions/..",
		public, public + "/", public + "/x/y", me + "/", "/api/v1/merchant", "/metrics", "/healthz", "/readyz", "/internal/v1/sessions", sessions + "/x/cancel/", sessions + "/cancel/x", sessions + "//cancel",
		"/api%2Fv1/sessions", "/openapi.yaml/", "/openapi.json", "/debug/pprof/", "/%00", "/%2e%2e/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r.call(method, path, key, `{"amountCents": 1}`).wantError(t, http.StatusNotFound, "path not found")
		}
	}
}

func TestMethodsThatAreNotTaken(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for path, allow := range map[string]string{
		sessions:                  "GET, HEAD, OPTIONS, POST",
		sessions + "/x":           "GET, HEAD, OPTIONS",
		sessions + "/x/cancel":    "OPTIONS, POST",
		public + "/x":             "GET, HEAD, OPTIONS",
		me:                        "GET, HEAD, OPTIONS",
		rotate:                    "OPTIONS, POST",
		"/openapi.yaml":           "GET, HEAD",
		"/api/v1/%73essions":      "GET, HEAD, OPTIONS, POST", // the same path, escaped
		sessions + "?amount=1":    "GET, HEAD, OPTIONS, POST",
		"/api/v1/merchant/me?x=/": "GET, HEAD, OPTIONS",
	} {
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodTrace, "get", "PROPFIND"} {
			got := r.call(method, path, key, "")
			got.wantError(t, http.StatusMethodNotAllowed, "method not allowed; use "+strings.NewReplacer(", OPTIONS", "", "OPTIONS, ", "", ", HEAD", "", ", POST", " or POST").Replace(allow))
			if got.header.Get("Allow") != allow {
				t.Errorf("%s %s: Allow %q, want %q", method, path, got.header.Get("Allow"), allow)
			}
		}
	}
	r.call(http.MethodGet, rotate, key, "").want(t, http.StatusMethodNotAllowed)
}

func TestHeadIsGetWithoutABody(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	got := r.call(http.MethodHead, me, key, "").want(t, http.StatusOK)
	if len(got.raw) > 0 || got.header.Get("Content-Type") != "application/json" || got.header.Get("RateLimit") == "" {
		t.Errorf("%v %s", got.header, got.raw)
	}
	r.call(http.MethodHead, me, "", "").want(t, http.StatusUnauthorized)
	r.call(http.MethodHead, rotate, key, "").want(t, http.StatusMethodNotAllowed)
}

func TestTheInternalListenerServesRailsOnly(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail := f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, path := range []string{
		"/", sessions, sessions + "/" + id, sessions + "/" + id + "/cancel", public + "/" + id, me, rotate, "/openapi.yaml", "/metrics",
		"/internal", "/internal/v1/sessions", "/internal/v1/sessions/", "/internal/v1/sessions/" + id + "/", settlementOf(id) + "/", settlementOf(id) + "/x",
		settlementOf(""), "/internal/v1/sessions/./settlement", "/internal/v1/x/../sessions/" + id + "/settlement", "/" + settlementOf(id),
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			for _, credential := range []string{key, rail} {
				got := r.internally(method, path, credential, paid(1))
				got.wantError(t, http.StatusNotFound, "path not found")
				if got.header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s is open to browsers", path)
				}
			}
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		got := r.internally(method, settlementOf(id), rail, paid(1)).want(t, http.StatusMethodNotAllowed)
		if got.header.Get("Allow") != http.MethodPost {
			t.Errorf("%s: Allow %q", method, got.header.Get("Allow"))
		}
	}
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
}

// Whoever reaches the public port only cannot settle, with whatever credential.
func TestThePublicListenerSettlesNothing(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail := f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, credential := range []string{"", key, rail} {
		for _, path := range []string{settlementOf(id), sessions + "/" + id + "/settlement", "/api/v1" + settlementOf(id)} {
			r.call(http.MethodPost, path, credential, paid(1)).wantError(t, http.StatusNotFound, "path not found")
		}
	}
	r.call(http.MethodPost, sessions+"/"+id+"/cancel", rail, "").want(t, http.StatusUnauthorized)
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
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

// What net/http refuses by itself has the shape of all errors, too.
func TestRequestsThatAreNotHTTP(t *testing.T) {
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

func TestRequestsNoClientLibrarySends(t *testing.T) {
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

func TestAnOversizedBodyClosesTheConnection(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	got := r.call(http.MethodPost, sessions, key, strings.Repeat(" ", 4<<20))
	got.wantError(t, http.StatusBadRequest, tooLarge)
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}
