package delivery_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/test/dnstest"
	"github.com/merchant-operator/merchant-operator/test/leaks"
)

// Every test runs where the environment names a proxy, which net/http reads only once. There is none
// at that address.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	leaks.Run(m, func() error { return nil })
}

// A proxy would resolve and connect where the guard cannot see. (One is never used for loopback
// addresses, hence the name.)
func TestTheEnvironmentsProxyIsNotUsed(t *testing.T) {
	names := dnstest.Start(t)
	names.Set("example.com", "127.0.0.1")
	r := receive(t, status(http.StatusOK))
	options := r.trusting()
	options.Resolver = names.Resolver()
	got := send(t, options, attempt("https://example.com"+r.URL[strings.LastIndexByte(r.URL, ':'):]))
	if got.Outcome != delivery.Delivered {
		t.Errorf("%+v", got)
	}
}

// hangUp ends the connection of a request without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// inTurn gives the answers in order, and then repeats the last one.
func inTurn(answers ...http.HandlerFunc) http.HandlerFunc {
	var before atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		answers[min(int(before.Add(1)), len(answers))-1](w, r)
	}
}

// A receiver may close a kept connection at the instant the next event arrives on it, which says nothing of the endpoint.
func TestAKeptConnectionThatEndsUnderAnEventIsNoFailure(t *testing.T) {
	r := receivePlain(t, inTurn(status(http.StatusOK), hangUp, status(http.StatusOK)))
	c := client(t, r.trusting())
	for i, want := range []int{1, 3, 4} {
		if result := c.Send(t.Context(), attempt(r.URL)); result.Outcome != delivery.Delivered {
			t.Errorf("event %d: %+v", i, result)
		}
		if got := len(r.all()); got != want {
			t.Errorf("%d requests until event %d, want %d", got, i, want)
		}
	}
}

// The request is repeated on another connection once, and not at all when it was on a new one.
func TestAnEndpointThatHangsUpOnANewConnectionFails(t *testing.T) {
	r := receivePlain(t, inTurn(status(http.StatusOK), hangUp))
	c := client(t, r.trusting())
	c.Send(t.Context(), attempt(r.URL))
	for i, want := range []int{3, 4} {
		if result := c.Send(t.Context(), attempt(r.URL)); result != (delivery.Result{Reason: "no_answer"}) {
			t.Errorf("event %d: %+v", i, result)
		}
		if got := len(r.all()); got != want {
			t.Errorf("%d requests until event %d, want %d", got, i, want)
		}
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *receiver{"HTTP/1.1": receivePlain, "HTTP/2": receive} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "thank you") })
			c := client(t, r.trusting())
			for range 5 {
				if got := c.Send(t.Context(), attempt(r.URL)); got.Outcome != delivery.Delivered {
					t.Fatalf("%+v", got)
				}
			}
			if dials := r.dials.Load(); dials != 1 {
				t.Errorf("%d connections for 5 attempts, want 1", dials)
			}
		})
	}
}
