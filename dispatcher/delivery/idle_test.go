package delivery_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
)

// hangUp ends the connection of a request without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// inTurn answers each request as it is told; those behind the last one as the last one.
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
		if result := c.Send(t.Context(), attempt(r.URL)); result.Verdict != delivery.Delivered {
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
