//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/apiserver/webhook"
)

func drainFaults() []fault {
	return []fault{
		{"P8", "SIGTERM of an API replica under load", "every request it took is answered, and it ends with 0", tryDrain},
		{"P8", "a replica and a dispatcher stopped in one process", "no goroutine is left", tryLeak},
	}
}

func tryDrain(t *testing.T) (int, string) {
	t.Helper()
	s := newStage(t, 2, 0)
	s.merchant("coffee")
	key := s.apiKey("till", "coffee")
	s.toRedis.poison(t, "latency", "downstream", `{"latency":40}`) // so that there are always requests under way
	rounds := 2 * *intensity
	var answered atomic.Int64
	for n := range rounds {
		victim := s.replicas[n%2]
		begun := answered.Load()
		var calling sync.WaitGroup
		for range outageCallers {
			calling.Go(func() {
				c := newCaller()
				for {
					got, err := c.call(victim.public, http.MethodPost, sessions, key, `{"amountCents":100}`)
					switch {
					case errors.Is(err, errNotSent):
						return // it listens no more
					case err != nil || got.status != http.StatusCreated:
						t.Errorf("a request got %d, %v while the replica drained", got.status, err)
						return
					}
					answered.Add(1)
				}
			})
		}
		eventually(t, "the load is on", func() bool { return answered.Load() > begun+100 || t.Failed() })
		if err := victim.stop(); err != nil {
			t.Errorf("a drained replica ended with: %v", err)
		}
		calling.Wait()
		victim.restart(t)
	}
	return rounds, fmt.Sprintf("%d requests answered 201, none cut off; it ended with 0", answered.Load())
}

// tryLeak runs roles here, where goroutines can be looked at.
func tryLeak(t *testing.T) (int, string) {
	t.Helper()
	s := newStage(t, 1, 0)
	hooks := newReceiver(t)
	s.merchant("coffee")
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
			return err == nil && got.status == http.StatusCreated
		})
		cancel()
		running.Wait()
		c.http.CloseIdleConnections()
	}
	hooks.CloseClientConnections()
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

func (s *stage) runHere(ctx context.Context, running *sync.WaitGroup) (public string) {
	s.t.Helper()
	api := apiserver.DefaultOptions()
	api.Kubeconfig, api.RedisURL, api.DrainDelay = s.directly(apiserverAccount), s.redisURL(), 0
	api.PublicAddress, api.InternalAddress, api.OpsAddress, api.Log = s.address(), s.address(), s.address(), shared.logger()
	running.Go(func() {
		if err := apiserver.Run(ctx, api); err != nil {
			s.t.Error(err)
		}
	})
	dispatcher := webhook.DefaultOptions()
	dispatcher.Kubeconfig, dispatcher.RedisURL = s.directly(dispatcherAccount), s.redisURL()
	dispatcher.OpsAddress, dispatcher.Log = s.address(), shared.logger()
	dispatcher.AllowHTTP, dispatcher.AllowCIDRs = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	running.Go(func() {
		if err := webhook.Run(ctx, dispatcher); err != nil {
			s.t.Error(err)
		}
	})
	return "http://" + api.PublicAddress
}

// directly is a kubeconfig that leads through no proxy, whose goroutines would count.
func (s *stage) directly(account string) (path string) {
	s.t.Helper()
	user, err := shared.account(account)
	s.must(err)
	content, err := user.KubeConfig()
	s.must(err)
	path = filepath.Join(s.t.TempDir(), account)
	s.must(os.WriteFile(path, content, 0o600))
	return path
}
