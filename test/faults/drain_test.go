//go:build faults

package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func drainFaults() []fault {
	return []fault{
		{"P8", "SIGTERM of an API replica under load", "every request it accepted is answered, and it exits with 0", tryDrain},
		{"P8", "a replica and a dispatcher stopped in one process", "no goroutine is left", tryLeak},
	}
}

func tryDrain(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	s.Merchant("coffee")
	key := s.apiKey("till", "coffee")
	s.toRedis.poison(t, "latency", "downstream", `{"latency":40}`) // so that there are always requests under way
	rounds := 2 * *intensity
	var answered atomic.Int64
	for n := range rounds {
		victim := s.replicas[n%2]
		host := strings.TrimPrefix(victim.public, "http://")
		before := answered.Load()
		var calling sync.WaitGroup
		for range outageCallers {
			calling.Go(func() {
				c := newCaller()
				for closed := false; !closed; { // to go elsewhere, as a load balancer would by then
					got, err := c.call(victim.public, http.MethodPost, sessions, key, `{"amountCents":100}`)
					if err != nil || got.Status != http.StatusCreated {
						t.Errorf("a request got %d, %v while the replica drained", got.Status, err)
						return
					}
					answered.Add(1)
					closed = got.Closes
				}
			})
		}
		slow := halfSent(t, host, key)
		eventually(t, "there is load", func() bool {
			return t.Failed() || (answered.Load() > before+100 && gauges(t, victim.ops)[inFlight] >= float64(len(slow)))
		})
		ended := make(chan error, 1)
		go func() { ended <- victim.stop() }()
		eventually(t, "it listens no more", func() bool {
			connection, err := net.Dial("tcp", host)
			if err == nil {
				_ = connection.Close()
			}
			return err != nil
		})
		for _, connection := range slow {
			_, _ = io.WriteString(connection, secondHalf)
			if status := statusOn(connection); status != http.StatusCreated {
				t.Errorf("a request that was half sent when the replica drained got %d", status)
			}
			answered.Add(1)
		}
		if err := <-ended; err != nil {
			t.Errorf("a drained replica ended with: %v", err)
		}
		calling.Wait()
		victim.restart(t)
	}
	return rounds, fmt.Sprintf("%d requests answered 201, %d of them half sent when it stopped listening; none cut off; it ended with 0",
		answered.Load(), 10*rounds)
}

const firstHalf, secondHalf = `{"amountCents":`, `100}`

// halfSent are charges of which the second half is to come.
func halfSent(t *testing.T, host, key string) []net.Conn {
	t.Helper()
	all := connect(t, host, 10)
	for _, connection := range all {
		fmt.Fprintf(connection, "POST /api/v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			key, len(firstHalf+secondHalf), firstHalf)
	}
	return all
}

// tryLeak runs roles here, where goroutines can be looked at.
func tryLeak(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 1, 0)
	hooks := newReceiver(t)
	s.Merchant("coffee")
	key := s.apiKey("till", "coffee")
	// client-go keeps its connections to the Kubernetes API in a cache that outlives all clients.
	before, cached := goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop")
	rounds := 2 * *intensity
	for range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		public := s.runHere(ctx, &running)
		c := newCaller()
		eventually(t, "the replica serves", func() bool {
			got, err := c.call(public, http.MethodPost, sessions, key, `{"amountCents":100}`)
			return err == nil && got.Status == http.StatusCreated
		})
		cancel()
		running.Wait()
		c.http.CloseIdleConnections()
	}
	hooks.server.CloseClientConnections()
	http.DefaultClient.CloseIdleConnections()
	var left error
	defer func() {
		if t.Failed() {
			t.Log(left)
		}
	}()
	eventually(t, "all goroutines have ended", func() bool {
		left = goleak.Find(before, cached)
		return left == nil
	})
	return rounds, "none left after each stop"
}

func (s *deployment) runHere(ctx context.Context, running *sync.WaitGroup) (public string) {
	s.t.Helper()
	api := apiserver.DefaultOptions()
	api.Kubeconfig, api.RedisURL, api.DrainDelay = s.directly(fixture.APIServerAccount), s.url, 0
	api.PublicAddress, api.InternalAddress, api.Ops.Address, api.Log = s.address(), s.address(), s.address(), shared.logger()
	running.Go(func() {
		if err := apiserver.Run(ctx, api); err != nil {
			s.t.Error(err)
		}
	})
	events := dispatcher.DefaultOptions()
	events.Kubeconfig, events.RedisURL = s.directly(fixture.DispatcherAccount), s.url
	events.Ops.Address, events.Log = s.address(), shared.logger()
	events.AllowHTTP, events.Egress.Allow = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	running.Go(func() {
		if err := dispatcher.Run(ctx, events); err != nil {
			s.t.Error(err)
		}
	})
	return "http://" + api.PublicAddress
}

// directly is a kubeconfig that leads through no proxy, whose goroutines would count.
func (s *deployment) directly(account string) (path string) {
	s.t.Helper()
	path, err := shared.Kubeconfig(account)
	s.must(err)
	return path
}
