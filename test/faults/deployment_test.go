//go:build faults

package faults

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
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
	keeper      *redis.Client
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

// newStage starts replicas and dispatchers on a Redis with these arguments.
func deploy(t *testing.T, replicas, dispatchers int, redisArgs ...string) *deployment {
	t.Helper()
	server := redistest.Start(t, redisArgs...)
	s := &deployment{t: t, redis: server, toRedis: layWire(t, server.Addr()), keeper: keeperOf(t, server)}
	s.url = "redis://" + s.toRedis.Listen + "/0"
	s.open(replicas, dispatchers)
	return s
}

// newStageOn starts replicas, with these flags, and dispatchers on a Redis that is there already, and has no wire.
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
			"--public-rate", "10000", "--public-burst", "100000",
		}, s.flags...)},
		public: "http://" + public, internal: "http://" + internal,
	}
	s.t.Cleanup(r.kill)
	r.restart(s.t)
	s.replicas = append(s.replicas, r)
}

func (s *deployment) addDispatcher(n int, flags ...string) {
	s.t.Helper()
	toKube, kubeconfig := s.proxy(fixture.DispatcherAccount)
	ops := s.address()
	d := &process{name: fmt.Sprintf("dispatcher-%d", n+1), ops: ops, toKube: toKube, args: append([]string{
		"dispatcher", "--kubeconfig", kubeconfig, "--redis-url", s.url, "--ops-address", ops,
		"--lease", "20s", "--webhook-allow-http", "--webhook-allow-cidrs", "127.0.0.0/8",
	}, flags...)}
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

// apiKey applies an ApiKey and returns the delivered plaintext, once every replica takes it.
func (s *deployment) apiKey(name, merchant string) string {
	s.t.Helper()
	_, plain := s.ApiKey(name, merchant)
	for _, r := range s.replicas {
		s.accepts(r, plain)
	}
	return shared.secret(plain)
}

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

// space is what the keys of a merchant's state begin with.
func space(merchant *v1alpha1.Merchant) string {
	return bucketTag(published.ID(merchant.UID))
}
