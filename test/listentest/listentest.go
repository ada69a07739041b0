// Package listentest runs kubectl merchant listen in tests, and receives what it forwards.
package listentest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// Listening is a running kubectl merchant listen.
type Listening struct {
	// Out and Problems are what it has printed to stdout and stderr.
	Out, Problems logtest.Buffer

	t     *testing.T
	stop  context.CancelFunc
	ended chan int
}

// Execute runs a command line, and returns the exit code.
type Execute func(ctx context.Context, streams genericiooptions.IOStreams, args []string) int

// Start runs the command until the test ends. Its state is in the directory.
func Start(t *testing.T, execute Execute, state string, args ...string) *Listening {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", state)
	ctx, cancel := context.WithCancel(t.Context())
	l := &Listening{t: t, stop: cancel, ended: make(chan int, 1)}
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &l.Out, ErrOut: &l.Problems}
	var running sync.WaitGroup
	running.Go(func() { l.ended <- execute(ctx, streams, args) })
	t.Cleanup(func() { // it writes its state until it ends, so the directory is removed after that
		cancel()
		running.Wait()
	})
	return l
}

// Interrupt is Ctrl-C.
func (l *Listening) Interrupt() {
	l.t.Helper()
	l.stop()
	l.Exits(0)
}

// Exits waits until the command ends, with this code.
func (l *Listening) Exits(want int) {
	l.t.Helper()
	select {
	case code := <-l.ended:
		if code != want {
			l.t.Errorf("exit code %d, want %d\n%s", code, want, &l.Problems)
		}
	case <-time.After(fixture.Patience):
		l.t.Fatalf("it does not end\n%s", &l.Problems)
	}
}

// Says waits until stderr has these words.
func (l *Listening) Says(words string) {
	l.t.Helper()
	await.Until(l.t, fixture.Patience, "it says "+words, func() bool { return strings.Contains(l.Problems.String(), words) })
}

var printedOrder = regexp.MustCompile(`<(\d+)>`)

// Prints waits until the events were printed, and nothing else.
func (l *Listening) Prints(want ...string) {
	l.t.Helper()
	printed := func() (orders []string) {
		for _, found := range printedOrder.FindAllStringSubmatch(l.Out.String(), -1) {
			orders = append(orders, found[1])
		}
		return orders
	}
	await.Until(l.t, fixture.Patience, "it has printed "+strings.Join(want, ", "), func() bool { return len(printed()) >= len(want) })
	if diff := cmp.Diff(want, printed()); diff != "" {
		l.t.Errorf("printed (-want +got):\n%s", diff)
	}
}

// Secret returns the signing secret that it has printed.
func (l *Listening) Secret() string {
	l.t.Helper()
	found := regexp.MustCompile(`Signing secret: (whsec_\S+)`).FindStringSubmatch(l.Problems.String())
	if found == nil {
		l.t.Fatalf("there is no secret in %s", &l.Problems)
	}
	return found[1]
}

// Hook is a developer's receiver of webhooks.
type Hook struct {
	URL string

	mu       sync.Mutex
	statuses []int // of the next answers; then 204
	requests []Request
}

// Request is what a Hook has received.
type Request struct {
	ID, Body string
	Header   http.Header
}

// NewHook starts a receiver.
func NewHook(t *testing.T) *Hook {
	t.Helper()
	h := &Hook{}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.URL = server.URL + "/hooks"
	return h
}

// ServeHTTP notes a request, and answers it.
func (h *Hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, Request{r.Header.Get("webhook-id"), string(body), r.Header})
	status := http.StatusNoContent
	if len(h.statuses) > 0 {
		status, h.statuses = h.statuses[0], h.statuses[1:]
	}
	if status == http.StatusFound {
		w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
	}
	w.WriteHeader(status)
}

// Answer sets the statuses of the next answers.
func (h *Hook) Answer(statuses ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statuses = statuses
}

// Received are the requests so far.
func (h *Hook) Received() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

// IDs are the webhook-ids of the requests so far.
func (h *Hook) IDs() (ids []string) {
	for _, request := range h.Received() {
		ids = append(ids, request.ID)
	}
	return ids
}
