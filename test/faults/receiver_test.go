//go:build faults

package faults

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// receiver is a merchant's server, and remembers what it took.
type receiver struct {
	*httptest.Server

	secret string

	mu     sync.Mutex
	got    map[string]int // attempts by event
	bodies map[string]string
	wrong  []string
	dying  func(n int) bool // whether it dies before it has taken the n-th event; nil: never
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{got: map[string]int{}, bodies: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		if r.take(request.Header, body) {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// take remembers an attempt and reports whether the receiver dies of it.
func (r *receiver) take(header http.Header, body []byte) (dies bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := header.Get("Webhook-Id")
	verifier, err := standardwebhooks.NewWebhook(r.secret)
	if err == nil {
		err = verifier.Verify(body, header)
	}
	if err != nil {
		r.wrong = append(r.wrong, id+": "+err.Error())
	}
	if before, known := r.bodies[id]; known && before != string(body) {
		r.wrong = append(r.wrong, id+": says something else now")
	}
	if _, heard := r.bodies[id]; !heard {
		r.bodies[id] = string(body)
		if r.dying != nil && r.dying(len(r.bodies)) {
			return true // what it took dies with it
		}
	}
	r.got[id]++
	return false
}

// waitFor waits until each event has arrived, and returns how many did so more than once.
func (r *receiver) waitFor(t *testing.T, events []string) (again int) {
	t.Helper()
	missing := 0
	defer func() { t.Logf("%d of %d events were missing at the last look", missing, len(events)) }()
	eventually(t, "every event has arrived", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		missing, again = 0, 0
		for _, id := range events {
			if r.got[id] < 1 {
				missing++
			} else if r.got[id] > 1 {
				again++
			}
		}
		return missing == 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, wrong := range r.wrong {
		t.Error(wrong)
	}
	for id := range r.bodies {
		if !slices.Contains(events, id) {
			t.Errorf("%s arrived, and has not happened", id)
		}
	}
	return again
}

// events is how many it has taken, each counted once.
func (r *receiver) events() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// heardOf says whether an event about a session has arrived.
func (r *receiver) heardOf(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range r.bodies {
		if strings.Contains(body, id) {
			return true
		}
	}
	return false
}
