package examples

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// Whatever is lost between the till and the API, the payer is charged once.
func TestCharge_Once(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		faults  []fault
		creates int
		env     []string
	}{
		"answer lost":    {[]fault{lost, status(http.StatusServiceUnavailable, "1"), pass, status(http.StatusServiceUnavailable, "1")}, 3, nil},
		"half an answer": {[]fault{cut, status(http.StatusInternalServerError, "1"), pass, lost}, 3, nil},
		"timeout":        {[]fault{hang, status(http.StatusTooManyRequests, "1")}, 3, []string{"TIMEOUT=2"}},
	} {
		for _, e := range examples {
			t.Run(name+", "+e.name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				proxy := newProxy(t, test.faults...)
				till := s.charge(e, proxy.url, "1001", test.env...)
				id := s.session(till)
				s.settle(id, "COMPLETED")
				if code := till.exit(t); code != 0 {
					t.Errorf("exit code %d\n%s", code, &till.stderr)
				}
				want := "session " + id + "\nreplay: an earlier request created it\npayer's page " + proxy.url + "/pay/" + id + "\nstatus COMPLETED\n"
				if printed := till.stdout.String(); printed != want {
					t.Errorf("it printed\n%s\nwant\n%s", printed, want)
				}
				creates := proxy.requested()
				if len(creates) < test.creates {
					t.Errorf("it sent %d requests for a session, want %d", len(creates), test.creates)
				}
				for _, c := range creates {
					if c.idempotencyKey != "order-1001" || c.body != creates[0].body || c.session != "" && c.session != id {
						t.Errorf("it sent %+v, and first %+v", c, creates[0])
					}
				}
				if page := s.send(proxy.url, http.MethodGet, "/pay/"+id, "", ""); page.Status != http.StatusOK {
					t.Errorf("the payer's page: %d", page.Status)
				}
			})
		}
	}
}

func TestCharge_PaymentFailed(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			till := s.charge(e, api.Public, "1001")
			s.settle(s.session(till), "FAILED")
			if code := till.exit(t); code != 1 || !strings.HasSuffix(till.stdout.String(), "status FAILED\n") || strings.Contains(till.stdout.String(), "replay") {
				t.Errorf("exit code %d\n%s\n%s", code, &till.stdout, &till.stderr)
			}
		})
	}
}

// A till that was restarted, or whose order was changed after the charge.
func TestCharge_OrderChargedBefore(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.create("1001")
			s.settle(id, "COMPLETED")
			again := s.charge(e, api.Public, "1001")
			if code := again.exit(t); code != 0 || s.session(again) != id || !strings.Contains(again.stdout.String(), "\nreplay: ") {
				t.Errorf("exit code %d\n%s\n%s", code, &again.stdout, &again.stderr)
			}
			env := []string{"API_URL=" + api.Public, "API_KEY=" + s.key}
			other := start(t, e, env, "charge", "1001", "9999")
			if code := other.exit(t); code != 1 || other.stdout.String() != "" ||
				!strings.Contains(other.stderr.String(), "mismatch: order 1001 was charged before with another amount, as session "+id) {
				t.Errorf("another amount: exit code %d\n%s\n%s", code, &other.stdout, &other.stderr)
			}
		})
	}
}

func TestCharge_Fails(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			down := newProxy(t, status(http.StatusServiceUnavailable, "3600"))
			till := s.charge(e, down.url, "1001")
			code, message := till.exit(t), till.stderr.String()
			if code != 1 || !strings.Contains(message, "gave up: 503 ") || !strings.Contains(message, "request-of-the-proxy") || len(down.requested()) != 1 {
				t.Errorf("an API that is down: exit code %d\n%s", code, message)
			}
			s.key = strings.ToUpper(s.key)
			till = s.charge(e, api.Public, "1001")
			code, message = till.exit(t), till.stderr.String()
			if code != 1 || !strings.Contains(message, `refused: 401 {"error":"missing or invalid API key"}`) {
				t.Errorf("a wrong key: exit code %d\n%s", code, message)
			}
			for _, arguments := range [][]string{
				{}, {"charge", "1001"}, {"charge", "1001", "12.50"}, {"charge", `1"}`, "1250"}, {"charge", "order\n1", "1250"},
			} {
				till = start(t, e, []string{"API_URL=" + api.Public}, arguments...)
				if code := till.exit(t); code != 2 || !strings.Contains(till.stderr.String(), "charge ORDER AMOUNT_CENTS") {
					t.Errorf("%q: exit code %d\n%s", arguments, code, &till.stderr)
				}
			}
		})
	}
}

// Everybody on a machine can list the arguments of its processes.
func TestCharge_KeyNotInArguments(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var processes []byte
			proxy := newProxy(t, func(w http.ResponseWriter, r *http.Request, forward func() fixture.Answer) {
				var err error
				if processes, err = exec.Command("ps", "-A", "-ww", "-o", "args=").Output(); err != nil {
					t.Error(err)
				}
				pass(w, r, forward)
			})
			order := "order-of-" + e.name
			till := s.charge(e, proxy.url, order)
			s.settle(s.session(till), "COMPLETED")
			if code := till.exit(t); code != 0 || !strings.Contains(string(processes), order) {
				t.Fatalf("exit code %d\n%s\nThe processes were\n%s", code, &till.stderr, processes)
			}
			if strings.Contains(string(processes)+till.stdout.String()+till.stderr.String(), s.key) {
				t.Error("the key is an argument of a process, or printed")
			}
		})
	}
}

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
