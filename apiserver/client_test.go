package apiserver_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// result is what a caller sees.
type result struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any // nil unless the answer is a JSON object
	last   bool           // on its connection
}

// call sends one request and checks the answer against the OpenAPI document. headers are pairs of
// name and value.
func (r *replica) call(method, path, key, body string, headers ...string) result {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return r.send(request)
}

// report sends a rail's report to the internal listener and checks the answer against its document.
func (r *replica) report(sessionID, token, body string, headers ...string) result {
	r.t.Helper()
	return r.internally(http.MethodPost, settlementOf(sessionID), token, body, headers...)
}

// railGet has a rail read a session.
func (r *replica) railGet(sessionID, token string) result {
	r.t.Helper()
	return r.internally(http.MethodGet, "/internal/v1/sessions/"+sessionID, token, "")
}

func (r *replica) hold(sessionID, token, body string) result {
	r.t.Helper()
	return r.internally(http.MethodPost, "/internal/v1/sessions/"+sessionID+"/hold", token, body)
}

func settlementOf(sessionID string) string {
	return "/internal/v1/sessions/" + sessionID + "/settlement"
}

func (r *replica) internally(method, path, token, body string, headers ...string) result {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.internal+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return r.sendAs(internalDocument, request)
}

func (r *replica) send(request *http.Request) result {
	r.t.Helper()
	return r.sendAs(publicDocument, request)
}

func (r *replica) sendAs(documented document, request *http.Request) result {
	r.t.Helper()
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := read(r.t, response)
	checkDocumented(r.t, documented, request, got)
	return got
}

// plain asks a listener the document is not about.
func plain(t *testing.T, method, url, key string) result {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return read(t, response)
}

func read(t *testing.T, response *http.Response) result {
	t.Helper()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := result{status: response.StatusCode, header: response.Header, raw: raw, last: response.Close}
	if bytes.HasPrefix(raw, []byte("{")) {
		if err := json.Unmarshal(raw, &got.body); err != nil {
			t.Fatalf("status %d with a body that is no JSON: %s", got.status, raw)
		}
	}
	return got
}

// client shows redirects instead of following them.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       patience,
}

// want fails the test unless the answer has the status.
func (a result) want(t *testing.T, status int) result {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.raw)
	}
	return a
}

func (a result) wantError(t *testing.T, status int, message string) {
	t.Helper()
	if a.want(t, status).body["error"] != message {
		t.Errorf("error %q, want %q", a.body["error"], message)
	}
}

// text returns a field of the body.
func (a result) text(name string) string {
	value, _ := a.body[name].(string)
	return value
}

// statusOf is 0 when nothing answers.
func statusOf(url string) int {
	response, err := client.Get(url)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}
