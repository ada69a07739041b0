package dispatcher

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// receipt is one attempt as an endpoint sees it.
type receipt struct{ id, body, signature string }

// receiver is a merchant's endpoint.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	receipts []receipt
}

// newReceiver answers with the status of answer, whose argument is the number of attempts before.
func newReceiver(t *testing.T, answer func(before int, r *http.Request) int) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		before := len(r.receipts)
		r.receipts = append(r.receipts, receipt{request.Header.Get("webhook-id"), string(body), request.Header.Get("webhook-signature")})
		r.mu.Unlock()
		w.WriteHeader(answer(before, request))
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func always(status int) func(int, *http.Request) int {
	return func(int, *http.Request) int { return status }
}

// after answers with the status once the test says so, or the client has gone.
func after(said <-chan struct{}, status int) func(int, *http.Request) int {
	return func(_ int, r *http.Request) int {
		select {
		case <-said:
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

func (r *receiver) all() []receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.receipts)
}

func (r *receiver) ids() []string {
	var ids []string
	for _, receipt := range r.all() {
		ids = append(ids, receipt.id)
	}
	return ids
}

func (r *receiver) await(t *testing.T, attempts int) []receipt {
	t.Helper()
	eventually(t, "the endpoint sees its attempts", func() bool { return len(r.all()) >= attempts })
	return r.all()
}
