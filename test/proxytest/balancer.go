package proxytest

import (
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Balancer is a layer-4 load balancer on loopback that can forget its connections, as one does that fails over: it keeps them open,
// and passes nothing on. New connections work.
type Balancer struct {
	Address string // host:port

	listener net.Listener
	backend  string
	serving  sync.WaitGroup

	mu        sync.Mutex
	open      []net.Conn
	forgotten chan struct{} // closed when the connections opened since the last time are forgotten
	accepted  int
}

// NewBalancer returns a Balancer in front of a TCP server, until the end of the test.
func NewBalancer(t testing.TB, backend string) *Balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Balancer{Address: listener.Addr().String(), listener: listener, backend: backend, forgotten: make(chan struct{})}
	b.serving.Go(b.serve)
	t.Cleanup(b.close)
	return b
}

// Forget makes every open connection silent.
func (b *Balancer) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.forgotten)
	b.forgotten = make(chan struct{})
}

// Drop makes every open connection silent and loses the packets of new ones, as a machine does that is gone. It is until the end of the test.
func (b *Balancer) Drop(t testing.TB) {
	t.Helper()
	listener, ok := b.listener.(*net.TCPListener)
	if !ok {
		t.Fatalf("the listener is a %T", b.listener)
	}
	if err := listener.SetDeadline(time.Now()); err != nil { // ends Accept
		t.Fatal(err)
	}
	b.Forget()
	raw, err := listener.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// Linux loses the packets of connections for which a listener has no room, and a second listen changes how many it has room for.
	var listened error
	if err := errors.Join(raw.Control(func(fd uintptr) { listened = syscall.Listen(int(fd), 0) }), listened); err != nil {
		t.Fatal(err)
	}
	for {
		waiting, err := net.DialTimeout("tcp", b.Address, 100*time.Millisecond)
		if err != nil {
			return
		}
		b.mu.Lock()
		b.open = append(b.open, waiting)
		b.mu.Unlock()
	}
}

// Accepted returns how many connections were opened so far.
func (b *Balancer) Accepted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.accepted
}

func (b *Balancer) serve() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return // closed, or Drop
		}
		server, err := net.Dial("tcp", b.backend)
		if err != nil {
			_ = client.Close()
			continue
		}
		b.mu.Lock()
		b.accepted++
		b.open = append(b.open, client, server)
		forgotten := b.forgotten
		b.mu.Unlock()
		b.serving.Go(func() { pass(client, server, forgotten) })
		b.serving.Go(func() { pass(server, client, forgotten) })
	}
}

// pass copies what one side says to the other, and goes on to read it when the connection is forgotten.
func pass(from, to net.Conn, forgotten <-chan struct{}) {
	content := make([]byte, 16<<10)
	for {
		n, err := from.Read(content)
		select {
		case <-forgotten:
			if err == nil {
				continue
			}
			return // the other side is not told
		default:
		}
		if n > 0 {
			if _, err := to.Write(content[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

func (b *Balancer) close() {
	_ = b.listener.Close()
	b.mu.Lock()
	for _, connection := range b.open {
		_ = connection.Close()
	}
	b.mu.Unlock()
	b.serving.Wait()
}

// CheckForgotten lets a Balancer in front of a server that offers HTTP/2 forget a client's connection: one request fails, and the next one has a
// connection of its own. newClient gets the URL of the Balancer and the file of the server's certificate authority.
func CheckForgotten(t testing.TB, newClient func(url, authority string) *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	balancer := NewBalancer(t, server.Listener.Addr().String())
	url := "https://" + balancer.Address
	client := newClient(url, authority)
	client.Timeout = 500 * time.Millisecond
	get := func() error {
		response, err := client.Get(url)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	balancer.Forget()
	first := get()
	if err := get(); first == nil || err != nil {
		t.Errorf("the first request: %v; the second: %v", first, err)
	}
}
