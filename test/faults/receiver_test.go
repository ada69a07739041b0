//go:build faults

package faults

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
)

// receiver is a merchant's server, and remembers what it took.
type receiver struct {
	*inbox.Recorder

	server *httptest.Server
	URL    string

	mu    sync.Mutex
	known map[string]bool  // ids of events
	dying func(n int) bool // whether it dies of the n-th event before it has taken it; nil: never
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{known: map[string]bool{}}
	r.Recorder = inbox.NewRecorder(r.answer)
	r.server = httptest.NewServer(r)
	r.URL = r.server.URL
	t.Cleanup(r.server.Close)
	return r
}

func (r *receiver) answer(_ int, request *http.Request) (status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := request.Header.Get("Webhook-Id")
	first := !r.known[id]
	r.known[id] = true
	if first && r.dying != nil && r.dying(len(r.known)) {
		return 0 // what it took dies with it
	}
	return http.StatusOK
}

func (r *receiver) die(when func(n int) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dying = when
}

// taken counts the attempts by event that it has answered.
func (r *receiver) taken() map[string]int {
	taken := map[string]int{}
	for _, attempt := range r.Attempts() {
		if attempt.Status != 0 {
			taken[attempt.ID]++
		}
	}
	return taken
}

// waitFor waits until each event has arrived, and returns how many did so more than once.
func (r *receiver) waitFor(t *testing.T, events []string) (again int) {
	t.Helper()
	missing := 0
	defer func() { t.Logf("%d of %d events were missing at the last look", missing, len(events)) }()
	eventually(t, "every event has arrived", func() bool {
		taken := r.taken()
		missing, again = 0, 0
		for _, id := range events {
			if taken[id] < 1 {
				missing++
			} else if taken[id] > 1 {
				again++
			}
		}
		return missing == 0
	})
	bodies := map[string]string{}
	for _, attempt := range r.Attempts() {
		if attempt.Invalid != nil {
			t.Errorf("%s: %v", attempt.ID, attempt.Invalid)
		}
		if before, known := bodies[attempt.ID]; known && before != attempt.Body {
			t.Errorf("%s: says something else now", attempt.ID)
		}
		bodies[attempt.ID] = attempt.Body
	}
	for id := range bodies {
		if !slices.Contains(events, id) {
			t.Errorf("%s arrived, and has not happened", id)
		}
	}
	return again
}

// events is how many it has taken, each counted once.
func (r *receiver) events() int { return len(r.taken()) }

// received reports whether an event about a session has arrived.
func (r *receiver) received(id string) bool {
	return slices.ContainsFunc(r.Attempts(), func(a inbox.Attempt) bool { return strings.Contains(a.Body, id) })
}
