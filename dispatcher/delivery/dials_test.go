package delivery_test

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/test/await"
)

// An endpoint that answers on one connection, and says nothing on all others, holds one of those at most, however many events it takes.
func TestSend_DialsEnd(t *testing.T) {
	started, answer := make(chan struct{}), make(chan struct{})
	endpoint := unstarted(func(w http.ResponseWriter, _ *http.Request) {
		started <- struct{}{}
		<-answer
		w.WriteHeader(http.StatusOK)
	})
	listener := &silentAfterFirst{Listener: endpoint.Listener}
	endpoint.Listener = listener
	endpoint.StartTLS()
	t.Cleanup(endpoint.Close)
	c, results := client(t, endpoint.trusting()), make(chan delivery.Result)
	send := func() { results <- c.Send(t.Context(), attempt(endpoint.URL)) }
	const rounds = 5
	for round := range int64(rounds) {
		go send()
		<-started
		go send() // dials, as the connection is in use, and gets it when the first attempt has ended
		await.Until(t, time.Minute, "the second attempt dials", func() bool { return listener.accepted.Load() == round+1 })
		answer <- struct{}{}
		<-started
		answer <- struct{}{}
		for range 2 {
			if got := <-results; got.Outcome != delivery.Delivered {
				t.Fatalf("%+v", got)
			}
		}
	}
	await.Until(t, 10*time.Second, "one connection is held", func() bool { return listener.ended.Load() == rounds-1 })
}

// silentAfterFirst accepts its first connection. The others it keeps, and says nothing on them.
type silentAfterFirst struct {
	net.Listener

	first           bool
	accepted, ended atomic.Int64 // of the others
}

func (l *silentAfterFirst) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil || !l.first {
			l.first = true
			return connection, err
		}
		l.accepted.Add(1)
		go func() {
			_, _ = io.Copy(io.Discard, connection)
			_ = connection.Close()
			l.ended.Add(1)
		}()
	}
}
