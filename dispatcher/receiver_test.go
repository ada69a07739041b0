package dispatcher

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// receiver is a merchant's endpoint, which marks what it could verify.
type receiver struct {
	*httptest.Server

	inbox *inbox.Inbox
}

// newReceiver answers with the status of answer, whose argument is the number of attempts before.
func newReceiver(t *testing.T, answer func(before int, r *http.Request) int) *receiver {
	t.Helper()
	var attempts atomic.Int32
	handler, err := inbox.New(inbox.Options{
		Secrets: []string{dispatchertest.SigningSecret.Reveal()}, AcceptUnverified: true, Log: io.Discard,
		Status: func(r *http.Request) int { return answer(int(attempts.Add(1))-1, r) },
	})
	dispatchertest.Must(t, err)
	r := &receiver{httptest.NewServer(handler), handler}
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func always(status int) func(int, *http.Request) int {
	return func(int, *http.Request) int { return status }
}

// after answers with the status once the test closes the channel, or the client has gone.
func after(closed <-chan struct{}, status int) func(int, *http.Request) int {
	return func(_ int, r *http.Request) int {
		select {
		case <-closed:
		case <-r.Context().Done():
		}
		return status
	}
}

// hanging answers only when the client has gone.
func hanging(_ int, r *http.Request) int {
	<-r.Context().Done()
	return http.StatusOK
}

// ids are those of the events, one for each attempt.
func (r *receiver) ids() []string {
	var ids []string
	for _, event := range r.inbox.Events() {
		for range event.Attempts {
			ids = append(ids, event.ID)
		}
	}
	return ids
}

// await returns the events once there have been so many attempts.
func (r *receiver) await(t *testing.T, attempts int) []inbox.Event {
	t.Helper()
	dispatchertest.Eventually(t, "the endpoint gets its attempts", func() bool { return len(r.ids()) >= attempts })
	return r.inbox.Events()
}
