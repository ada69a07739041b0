package httpserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
)

func TestConnections_LongestIdleIsClosed(t *testing.T) {
	inBoth(t, func(r *fixture) {
		first, second, third := r.connect(), r.connect(), r.connect()
		for _, c := range []*client{first, second, third, first} {
			c.get("/")
			c.wantResponse("one of three")
			r.wantAllIdle(3) // an answer arrives before its connection counts as idle
		}
		fourth := r.connect()
		fourth.get("/")
		fourth.wantResponse("the fourth")
		second.wantClosed("the second, which has waited longest,")
		for _, c := range []*client{third, first} {
			c.get("/")
			c.wantResponse("one that stays")
		}
		r.wantCounts(3, 1)
	})
}

// An attacker opens connections and says nothing, or never ends a header.
func TestConnections_BusyOneOutlivesFlood(t *testing.T) {
	inBoth(t, func(r *fixture) {
		till := r.connect()
		for i := range 100 {
			till.get("/")
			till.wantResponse("the one at work")
			attacker := r.connect()
			if i%2 == 0 {
				_, _ = io.WriteString(attacker, "GET / HTTP/1.1\r\nX-Slow: ")
			}
			r.wantCounts(min(i+2, 3), max(0, i-1)) // it was accepted
		}
	})
}

func TestConnections_RequestInProgressIsKept(t *testing.T) {
	inBoth(t, func(r *fixture) {
		clients := []*client{r.connect(), r.connect(), r.connect()}
		for _, c := range clients {
			c.get("/stay")
			<-r.staying
		}
		late := r.connect()
		_, _ = io.WriteString(late, "GET /") // a TLS client says nothing before it has to
		late.wantClosed("the one too many")
		close(r.end)
		for _, c := range clients {
			c.wantResponse("one that was there")
			_ = c.Close()
		}
		r.wantCounts(0, 1)
	})
}

// net/http may have read the request of a connection that was just chosen to be closed, and not closed yet.
func TestConnections_ClosingOneHandlesNothing(t *testing.T) {
	for name, choose := range map[string]func(*connections){
		"evicted": func(c *connections) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.drop(c.idle.next)
		},
		"drained": (*connections).dropIdle,
	} {
		t.Run(name, func(t *testing.T) {
			inBoth(t, func(r *fixture) {
				till := r.connect()
				till.get("/")
				till.wantResponse("the first request")
				r.awaitIdle()
				choose(r.connections)
				till.get("/?id=late")
				till.wantClosed("the connection")
				if _, handled := r.handled.Load("late"); handled {
					r.t.Error("the request was handled without a response")
				}
				r.wantCounts(0, 0)
			})
		})
	}
}

// poster sends requests over one kept connection after another, until it can open none. It returns the ids of those that
// were answered.
func (r *fixture) poster(name string, count int) (answered []string) {
	var connection net.Conn
	var answers *bufio.Reader
	for i := range count {
		if connection == nil {
			opened, err := new(net.Dialer).DialContext(r.t.Context(), "tcp", r.address)
			if err != nil {
				return answered
			}
			_ = opened.SetDeadline(time.Now().Add(patience))
			connection, answers = opened, bufio.NewReader(opened)
		}
		id := fmt.Sprintf("%s-%d", name, i)
		fmt.Fprintf(connection, "POST /?id=%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", id)
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			_ = connection.Close()
			connection = nil
			continue
		}
		_ = answer.Body.Close()
		answered = append(answered, id)
	}
	if connection != nil {
		_ = connection.Close()
	}
	return answered
}

// Six clients have room for three connections, so that each new one closes one that is idle, or seems to be. At the end
// the server shuts down under them. Every request is answered, or was not handled.
func TestConnections_HandledRequestIsAnswered(t *testing.T) {
	r := newFixture(t, false)
	var clients sync.WaitGroup
	var mu sync.Mutex
	answered := map[string]bool{}
	started := make(chan struct{}, 6)
	for i := range 6 {
		clients.Go(func() {
			r.poster(fmt.Sprint("first-", i), 1)
			started <- struct{}{}
			ids := r.poster(fmt.Sprint("client-", i), 500)
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				answered[id] = true
			}
		})
	}
	for range 6 {
		<-started
	}
	await.Until(t, patience, "there was enough to do", func() bool {
		handled := 0
		r.handled.Range(func(any, any) bool { handled++; return true })
		return handled > 1000
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	clients.Wait()
	for i := range 6 {
		r.handled.Delete(fmt.Sprintf("first-%d-0", i))
	}
	r.handled.Range(func(id, _ any) bool {
		if !answered[id.(string)] {
			t.Errorf("%s was handled and not answered", id)
		}
		return true
	})
}

// Long polls have a limit of their own: they take no place of a request, and their connections count again when they end.
func TestConnections_UncountedRequests(t *testing.T) {
	inBoth(t, func(r *fixture) {
		long := make([]*client, 4)
		for i := range long {
			long[i] = r.connect()
			long[i].get("/stay?uncounted=1")
			<-r.staying
		}
		r.wantCounts(0, 0)
		short := []*client{r.connect(), r.connect()}
		for _, c := range short {
			c.get("/")
			c.wantResponse("a request beside them")
		}
		r.wantCounts(2, 0)
		r.wantAllIdle(2)
		close(r.end)
		for _, c := range long {
			c.wantResponse("a long poll")
		}
		r.wantCounts(3, 3) // the longest idle ones are closed
	})
}
