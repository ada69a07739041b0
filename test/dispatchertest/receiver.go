package dispatchertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
)

// NewSender returns a client that also sends to this machine.
func NewSender(t *testing.T) *delivery.Client {
	t.Helper()
	client, err := delivery.New(delivery.Options{AllowHTTP: true, Rules: egress.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	Must(t, err)
	t.Cleanup(client.Close)
	return client
}

// SenderFunc is a sender that makes no attempt over the network.
type SenderFunc func() delivery.Result

// Send returns the result.
func (s SenderFunc) Send(context.Context, delivery.Request) delivery.Result { return s() }

// Receiver is a merchant's endpoint. It marks which events had a signature that it could verify.
type Receiver struct {
	*httptest.Server

	inbox *inbox.Inbox
}

// NewReceiver answers with the status of answer, whose argument is the number of attempts before.
func NewReceiver(t *testing.T, answer func(before int, r *http.Request) int) *Receiver {
	t.Helper()
	var attempts atomic.Int32
	handler, err := inbox.New(inbox.Options{
		Secrets: []string{SigningSecret.Reveal()}, AcceptUnverified: true, Log: io.Discard,
		Status: func(r *http.Request) int { return answer(int(attempts.Add(1))-1, r) },
	})
	Must(t, err)
	r := &Receiver{httptest.NewServer(handler), handler}
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// Shop is the receiver and the endpoint of a new merchant in bucket 7.
func (f *Fixture) Shop(t *testing.T, answer func(before int, r *http.Request) int) (*Receiver, endpoints.Endpoint) {
	t.Helper()
	shop := NewReceiver(t, answer)
	return shop, f.EndpointAt(shop.URL, 7)
}

// Always answers each attempt with the status.
func Always(status int) func(int, *http.Request) int {
	return func(int, *http.Request) int { return status }
}

// After answers with the status once the test closes the channel, or the client has gone.
func After(closed <-chan struct{}, status int) func(int, *http.Request) int {
	return func(_ int, r *http.Request) int {
		select {
		case <-closed:
		case <-r.Context().Done():
		}
		return status
	}
}

// Hanging answers only when the client has gone.
func Hanging(_ int, r *http.Request) int {
	<-r.Context().Done()
	return http.StatusOK
}

// IDs returns the ids of the events, one for each attempt.
func (r *Receiver) IDs() []string {
	var ids []string
	for _, event := range r.inbox.Events() {
		for range event.Attempts {
			ids = append(ids, event.ID)
		}
	}
	return ids
}

// Await returns the events once there have been so many attempts.
func (r *Receiver) Await(t *testing.T, attempts int) []inbox.Event {
	t.Helper()
	Eventually(t, "the endpoint gets its attempts", func() bool { return len(r.IDs()) >= attempts })
	return r.inbox.Events()
}

// AwaitEvent waits until there have been more than n attempts, and expects the n-th event, counted from 0, to be this one.
func (r *Receiver) AwaitEvent(t *testing.T, n int, id string) {
	t.Helper()
	if seen := r.Await(t, n+1); seen[n].ID != id {
		t.Errorf("saw %s, want %s", seen[n].ID, id)
	}
}

// WantAttempts expects so many attempts until now.
func (r *Receiver) WantAttempts(t *testing.T, want int) {
	t.Helper()
	if n := len(r.IDs()); n != want {
		t.Errorf("%d attempts, want %d", n, want)
	}
}
