package ingress

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// newService is what a Service is to a proxy: one address, whose new connections go to the replicas that are ready, one after the other.
func newService(t *testing.T, replicas ...fixture.Replica) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", proxyAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	var ready atomic.Pointer[[]fixture.Replica]
	ready.Store(&replicas)
	over := make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
				var now []fixture.Replica
				for _, replica := range replicas {
					if fixture.Ready(replica.Ops) {
						now = append(now, replica)
					}
				}
				ready.Store(&now)
			}
		}
	})
	tasks.Go(func() {
		for n := 0; ; n++ {
			accepted, err := listener.Accept()
			if err != nil {
				return
			}
			to := *ready.Load()
			if len(to) == 0 {
				_ = accepted.Close()
				continue
			}
			go forward(accepted, strings.TrimPrefix(to[n%len(to)].Public, "http://"))
		}
	})
	t.Cleanup(func() {
		close(over)
		_ = listener.Close()
		tasks.Wait()
	})
	return listener.Addr().String()
}

// forward copies both ways until one side ends, and then ends the other: with a reset if there was one.
func forward(client net.Conn, replica string) {
	server, err := net.Dial("tcp", replica)
	if err != nil {
		reset(client)
		return
	}
	var both sync.WaitGroup
	one := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil {
			reset(to)
			return
		}
		if tcp, ok := to.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}
	both.Go(func() { one(server, client) })
	both.Go(func() { one(client, server) })
	both.Wait()
	_ = client.Close()
	_ = server.Close()
}

func reset(connection net.Conn) {
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}
