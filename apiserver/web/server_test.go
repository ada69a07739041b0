package web

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

var errOverload = errors.New("too many")

// newServer returns a Server of one path, and the events of its requests.
func newServer(t *testing.T, methods Methods) (*Server, *[]Event) {
	t.Helper()
	events := &[]Event{}
	return New(Options{
		Log: slog.New(slog.DiscardHandler), Draining: func() bool { return false }, CrossOrigin: "/api/",
		Finished: func(e *Event) { *events = append(*events, *e) },
		Answer: func(err error) Answer {
			switch {
			case errors.Is(err, admission.ErrRateLimited):
				return Answer{Status: http.StatusTooManyRequests}
			case errors.Is(err, ErrBodyTimeout):
				return Answer{Status: http.StatusRequestTimeout}
			case errors.Is(err, errOverload):
				return Answer{Status: http.StatusServiceUnavailable, Overload: true}
			}
			return Answer{Status: http.StatusNotFound}
		},
	}, NewMetrics(prometheus.NewRegistry()), Routes{"/api/thing": methods}), events
}

// Each request has one event at its end, also after a panic.
func TestServer_OneEvent(t *testing.T) {
	failure := errors.New("failure")
	s, events := newServer(t, Methods{
		http.MethodGet:  func(_ *Event, w http.ResponseWriter, _ *http.Request) error { return Respond(w, http.StatusCreated, 1) },
		http.MethodPost: func(*Event, http.ResponseWriter, *http.Request) error { return failure },
		http.MethodPut:  func(*Event, http.ResponseWriter, *http.Request) error { panic("a bug") },
	})
	for _, row := range []struct {
		name, method, path string
		status             int
		err                error // nil: none
	}{
		{"a response", http.MethodGet, "/api/thing", http.StatusCreated, nil},
		{"an error", http.MethodPost, "/api/thing", http.StatusNotFound, failure},
		{"an unknown path", http.MethodGet, "/api/other", http.StatusNotFound, ErrNoRoute},
		{"a path to clean", http.MethodGet, "/api//thing", http.StatusNotFound, ErrNoRoute},
		{"a preflight", http.MethodOptions, "/api/thing", http.StatusNoContent, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			*events = nil
			response := httptest.NewRecorder()
			s.ServeHTTP(response, httptest.NewRequest(row.method, row.path, http.NoBody))
			if response.Code != row.status || len(*events) != 1 {
				t.Fatalf("status %d, want %d; %d events", response.Code, row.status, len(*events))
			}
			if e := (*events)[0]; e.Status() != row.status || !errors.Is(e.Err, row.err) {
				t.Errorf("the event has status %d and error %v", e.Status(), e.Err)
			}
		})
	}
	t.Run("a panic", func(t *testing.T) {
		*events = nil
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/api/thing", http.NoBody))
		if len(*events) != 1 || (*events)[0].Err == nil {
			t.Errorf("events %v", *events)
		}
	})
}

// A partial response must not look complete: the connection is aborted.
func TestServer_PanicInResponse(t *testing.T) {
	s, _ := newServer(t, Methods{http.MethodGet: func(_ *Event, w http.ResponseWriter, _ *http.Request) error {
		_, _ = w.Write([]byte("a part"))
		panic("a bug")
	}})
	defer func() {
		if problem := recover(); problem != http.ErrAbortHandler { //nolint:errorlint // a sentinel to panic with
			t.Errorf("panic %v", problem)
		}
	}()
	s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/thing", http.NoBody))
}

// What handlers say of a request decides which figure has it.
func TestMetrics_Count(t *testing.T) {
	quota := ratelimit.Quota{Policy: ratelimit.Policy{RequestsPerSecond: 1, Burst: 1}}
	limited := func(e *Event, w http.ResponseWriter, _ *http.Request) error {
		e.SetQuota(w.Header(), MerchantLimit, quota, admission.ErrRateLimited)
		return admission.ErrRateLimited
	}
	for _, row := range []struct {
		name    string
		handler Handler
		want    []int // requests in the histogram, of test mode, over the limit
	}{
		{"a live request", func(*Event, http.ResponseWriter, *http.Request) error { return nil }, []int{1, 0, 0}},
		{"of test mode", func(e *Event, _ http.ResponseWriter, _ *http.Request) error { e.TestMode = true; return nil }, []int{0, 1, 0}},
		{"over the limit", limited, []int{1, 0, 1}},
		{"over the limit, of test mode", func(e *Event, w http.ResponseWriter, r *http.Request) error {
			e.TestMode = true
			return limited(e, w, r)
		}, []int{0, 1, 0}},
		{"an overload", func(*Event, http.ResponseWriter, *http.Request) error { return errOverload }, []int{0, 0, 0}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, _ := newServer(t, Methods{http.MethodGet: row.handler})
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/thing", http.NoBody))
			got := []int{
				testutil.CollectAndCount(s.metrics.durations), testutil.CollectAndCount(s.metrics.test),
				int(testutil.ToFloat64(s.metrics.limited.WithLabelValues(MerchantLimit))),
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("counted %v, want %v", got, row.want)
			}
		})
	}
}

// exchange sends the beginning of a request to a server with this ReadTimeout, and returns the status of the response.
func exchange(t *testing.T, handler http.Handler, readTimeout time.Duration, request string) int {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ReadTimeout = readTimeout
	server.Start()
	t.Cleanup(server.Close)
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(connection, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response.StatusCode
}

// A client that waits for leave to send its body, and gets none, has its response at once.
func TestServer_RefusedBeforeTheBody(t *testing.T) {
	s, _ := newServer(t, Methods{http.MethodPost: func(*Event, http.ResponseWriter, *http.Request) error { return admission.ErrRateLimited }})
	request := "POST /api/thing HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n"
	if status := exchange(t, s, time.Hour, request); status != http.StatusTooManyRequests {
		t.Errorf("status %d", status)
	}
}

// A client that does not send its body in time, and waits for the response, gets 408: whether the handler ends with the error of the body
// or with what the cancelled request made of another one.
func TestServer_LateBody(t *testing.T) {
	for name, fail := range map[string]func(r *http.Request, err error) error{
		"the error of the body":    func(_ *http.Request, err error) error { return err },
		"of the cancelled request": func(r *http.Request, _ error) error { return fmt.Errorf("admit: %w", r.Context().Err()) },
	} {
		for _, length := range []int{10, 10_000} {
			t.Run(fmt.Sprint(name, ", ", length, " bytes"), func(t *testing.T) {
				s, _ := newServer(t, Methods{http.MethodPost: func(_ *Event, w http.ResponseWriter, r *http.Request) error {
					_, err := ReadObject(w, r)
					return fail(r, err)
				}})
				request := fmt.Sprintf("POST /api/thing HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", length)
				if status := exchange(t, s, 100*time.Millisecond, request); status != http.StatusRequestTimeout {
					t.Errorf("status %d", status)
				}
			})
		}
	}
}
