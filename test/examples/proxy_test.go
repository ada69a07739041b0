package examples

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// proxy stands between a program and the API. The first requests meet its faults, one each; the others pass.
type proxy struct {
	url string

	t       *testing.T
	mu      sync.Mutex
	faults  []fault
	creates []create // that have reached the proxy
}

// create is a request for a session. The session is empty if it did not reach the API.
type create struct{ idempotencyKey, body, session string }

// fault answers a request. forward sends it to the API.
type fault func(w http.ResponseWriter, r *http.Request, forward func() fixture.Answer)

func newProxy(t *testing.T, faults ...fault) *proxy {
	t.Helper()
	p := &proxy{t: t, faults: faults}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	next, record := p.next(r, string(body))
	next(w, r, func() fixture.Answer {
		headers := []string{"Content-Type", "application/json"}
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			headers = append(headers, "Idempotency-Key", key)
		}
		answer, err := fixture.Call(http.DefaultClient, api.Public, r.Method, r.URL.RequestURI(), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), string(body), headers...)
		if err != nil {
			p.t.Error(err)
		}
		record(answer.Text("sessionId"))
		return answer
	})
}

// next returns the fault of a request, and how its session is recorded.
func (p *proxy) next(r *http.Request, body string) (f fault, record func(session string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, record = pass, func(string) {}
	if len(p.faults) > 0 {
		f, p.faults = p.faults[0], p.faults[1:]
	}
	if r.Method == http.MethodPost {
		n := len(p.creates)
		p.creates = append(p.creates, create{idempotencyKey: r.Header.Get("Idempotency-Key"), body: body})
		record = func(session string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.creates[n].session = session
		}
	}
	return f, record
}

// requested returns the requests for a session so far.
func (p *proxy) requested() []create {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]create{}, p.creates...)
}

func pass(w http.ResponseWriter, _ *http.Request, forward func() fixture.Answer) {
	write(w, forward())
}

func write(w http.ResponseWriter, answer fixture.Answer) {
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Raw)
}

// lost closes the connection instead of answering.
func lost(_ http.ResponseWriter, _ *http.Request, forward func() fixture.Answer) {
	forward()
	panic(http.ErrAbortHandler)
}

// cut closes the connection in the middle of the answer.
func cut(w http.ResponseWriter, _ *http.Request, forward func() fixture.Answer) {
	answer := forward()
	answer.Header.Set("Content-Length", "1000")
	answer.Raw = answer.Raw[:len(answer.Raw)/2]
	write(w, answer)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// hang answers nothing until the program gives up.
func hang(_ http.ResponseWriter, r *http.Request, forward func() fixture.Answer) {
	forward()
	<-r.Context().Done()
}

// status answers with an error that has not reached the API.
func status(code int, retryAfter string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ func() fixture.Answer) {
		w.Header().Set("Retry-After", retryAfter)
		w.Header().Set("X-Request-Id", "request-of-the-proxy")
		http.Error(w, `{"error":"try again later"}`, code)
	}
}
