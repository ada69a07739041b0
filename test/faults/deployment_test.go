//go:build faults

package faults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	goredis "github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// deployment is one fault's Redis, with roles that use it and a tenant.
type deployment struct {
	fixture.Tenant

	t           *testing.T
	redis       *redistest.Server
	toRedis     wire // the only way of the roles to it
	url         string
	flags       []string // more of the API replicas
	keeper      *goredis.Client
	replicas    []*replica
	dispatchers []*process
	console     *console // nil: none
}

// replica is one of the API.
type replica struct {
	*process

	public, internal string // base URLs
}

// durable lets a Redis answer only when it has written to its disk.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// deploy starts replicas and dispatchers on a Redis with these arguments.
func deploy(t *testing.T, replicas, dispatchers int, redisArgs ...string) *deployment {
	t.Helper()
	server := redistest.Start(t, redisArgs...)
	s := &deployment{t: t, redis: server, toRedis: newWire(t, server.Addr()), keeper: newKeeper(t, server)}
	s.url = "redis://" + s.toRedis.Listen + "/0"
	s.open(replicas, dispatchers)
	return s
}

// deployOn starts replicas, with these flags, and dispatchers on a Redis that is there already, and has no wire.
func deployOn(t *testing.T, url string, replicas, dispatchers int, flags ...string) *deployment {
	t.Helper()
	s := &deployment{t: t, url: url, flags: flags}
	s.open(replicas, dispatchers)
	return s
}

func (s *deployment) open(replicas, dispatchers int) {
	s.t.Helper()
	s.Tenant = fixture.NewTenant(s.t, shared.Client)
	for n := range replicas {
		s.addReplica(n)
	}
	for n := range dispatchers {
		s.addDispatcher(n)
	}
	s.t.Cleanup(func() { // before they are killed
		for _, r := range s.replicas {
			r.keepMetrics()
		}
		for _, d := range s.dispatchers {
			d.keepMetrics()
		}
		if s.console != nil {
			s.console.keepMetrics()
		}
	})
}

// proxy stands between an account of the data plane and the Kubernetes API.
func (s *deployment) proxy(account string) (toKube *kubeproxy.Proxy, kubeconfig string) {
	s.t.Helper()
	user, err := shared.Account(account)
	s.must(err)
	toKube, err = kubeproxy.Start(user.Config())
	s.must(err)
	s.t.Cleanup(toKube.Close)
	kubeconfig, err = toKube.Kubeconfig(s.t.TempDir(), account)
	s.must(err)
	return toKube, kubeconfig
}

func (s *deployment) addReplica(n int) {
	s.t.Helper()
	toKube, kubeconfig := s.proxy(fixture.APIServerAccount)
	public, internal, ops := s.address(), s.address(), s.address()
	r := &replica{
		process: &process{name: fmt.Sprintf("apiserver-%d", n+1), ops: ops, toKube: toKube, args: append([]string{
			"apiserver", "--kubeconfig", kubeconfig, "--redis-url", s.url, "--drain-delay", "1s",
			"--public-address", public, "--internal-address", internal, "--ops-address", ops,
			"--public-rate", "10000", "--public-burst", "100000", "--max-sessions-per-day", "100000000",
		}, s.flags...)},
		public: "http://" + public, internal: "http://" + internal,
	}
	s.t.Cleanup(r.kill)
	r.restart(s.t)
	s.replicas = append(s.replicas, r)
}

func (s *deployment) addDispatcher(n int, flags ...string) {
	s.t.Helper()
	s.runDispatcher(&process{name: fmt.Sprintf("dispatcher-%d", n+1)}, flags...)
}

// runDispatcher starts the process as a dispatcher.
func (s *deployment) runDispatcher(d *process, flags ...string) {
	s.t.Helper()
	toKube, kubeconfig := s.proxy(fixture.DispatcherAccount)
	d.ops, d.toKube = s.address(), toKube
	d.args = append([]string{
		"dispatcher", "--kubeconfig", kubeconfig, "--redis-url", s.url, "--ops-address", d.ops,
		"--lease", "20s", "--webhook-allow-http", "--webhook-allow-cidrs", "127.0.0.0/8",
	}, flags...)
	s.t.Cleanup(d.kill)
	d.restart(s.t)
	s.dispatchers = append(s.dispatchers, d)
}

func (s *deployment) address() string {
	s.t.Helper()
	var address string
	s.must(fixture.Choose(&address))
	return address
}

func (s *deployment) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// apiKey applies an ApiKey that the options change and returns the delivered plaintext, once every replica takes it.
func (s *deployment) apiKey(name, merchant string, change ...func(*v1alpha1.ApiKey)) string {
	s.t.Helper()
	_, plain := s.ApiKey(name, merchant, change...)
	for _, r := range s.replicas {
		s.accepts(r, plain)
	}
	return shared.secret(plain)
}

// mayDoAll has every permission, which refunds need.
func mayDoAll(key *v1alpha1.ApiKey) { key.Spec.Permissions = v1alpha1.Permissions() }

// accepts waits until a replica takes the key.
func (s *deployment) accepts(r *replica, key string) {
	s.t.Helper()
	client := newCaller()
	eventually(s.t, r.name+" takes the key", func() bool {
		got, err := client.call(r.public, "GET", me, key, "")
		return err == nil && got.Status == 200
	})
}

// delivered waits for a Secret and returns what it holds.
func (s *deployment) delivered(name, field string) string {
	s.t.Helper()
	return shared.secret(s.Delivered(name, field))
}

// space is the prefix of the Redis keys of a merchant's state.
func space(merchant *v1alpha1.Merchant) string {
	return bucketTag(published.ID(merchant.UID))
}

const (
	sessions = fixture.Sessions
	me       = fixture.Me
	rotate   = fixture.Rotate
)

// caller is a client that sends each request once.
type caller struct{ http *http.Client }

func newCaller() caller {
	return caller{&http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 5 * time.Second}}}
}

// call sends one request; see fixture.Call.
func (c caller) call(base, method, path, bearer, body string, headers ...string) (fixture.Answer, error) {
	return fixture.Call(c.http, base, method, path, bearer, body, headers...)
}

// unavailable reports whether an answer leaves the result of the request open.
func unavailable(a fixture.Answer) bool { return a.Status == http.StatusServiceUnavailable }

// railToken is of a new account that may settle.
func (s *deployment) railToken() string { return shared.secret(s.RailToken()) }

// bucketTag is the prefix of the Redis keys of a merchant's state.
func bucketTag(merchantID string) string {
	return string(redis.BucketKeyspace(session.MerchantBucket(merchantID)))
}

// mustCall fails the test unless the answer has the status.
func (s *deployment) mustCall(status int, base, method, path, bearer, body string, headers ...string) fixture.Answer {
	s.t.Helper()
	c := newCaller()
	defer c.http.CloseIdleConnections()
	c.http.Timeout = fixture.Patience // a rotation may wait for the Kubernetes API
	got, err := c.call(base, method, path, bearer, body, headers...)
	if err != nil || got.Status != status {
		s.t.Fatalf("%s %s: %d %v, %v; want %d", method, path, got.Status, got.Body, err, status)
	}
	return got
}

// callers call, each n-th step of each caller, until stop, which waits for them.
func callers(many int, step func(c caller, n, step int)) (stop func()) {
	done := make(chan struct{})
	var calling sync.WaitGroup
	for n := range many {
		calling.Go(func() {
			c := newCaller()
			for i := n; ; i++ {
				select {
				case <-done:
					return
				default:
					step(c, n, i)
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		calling.Wait()
	})
}

// wire is the connection between two programs, with faults.
type wire struct{ *toxiproxy.Proxy }

// newWire leads to the address.
func newWire(t testing.TB, to string) wire {
	t.Helper()
	// Not port 0: a client that dials again while the wire is cut could be given the wire's own port, and be
	// connected to itself.
	var listen string
	if err := fixture.Choose(&listen); err != nil {
		t.Fatal(err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "wire", listen, to)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return wire{proxy}
}

// poison adds a fault until it is healed. The attributes are JSON, as toxiproxy documents them.
func (w wire) poison(t testing.TB, kind, stream, attributes string) {
	t.Helper()
	toxic := fmt.Sprintf(`{"name":"%s","type":"%s","stream":"%s","attributes":%s}`, kind, kind, stream, attributes)
	if _, err := w.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		t.Fatal(err)
	}
}

func (w wire) heal() { w.Toxics.ResetToxics(context.Background()) }

// cut closes it, and restore opens it again on the same address.
func (w wire) cut() { w.Stop() }

func (w wire) restore(t testing.TB) {
	t.Helper()
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
}
