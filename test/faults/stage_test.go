//go:build faults

package faults

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// stage is one fault's Redis, with roles that use it and a namespace of merchants.
type stage struct {
	t           *testing.T
	namespace   string
	redis       *redistest.Server
	toRedis     wire // the only way of the roles to it
	url         string
	flags       []string // more of the API replicas
	keeper      *redis.Client
	replicas    []*replica
	dispatchers []*process
}

// replica is one of the API.
type replica struct {
	*process

	public, internal string // base URLs
}

// durable lets a Redis answer only when it has written to its disk.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// newStage starts replicas and dispatchers on a Redis with these arguments.
func newStage(t *testing.T, replicas, dispatchers int, redisArgs ...string) *stage {
	t.Helper()
	server := redistest.Start(t, redisArgs...)
	s := &stage{t: t, redis: server, toRedis: layWire(t, server.Addr()), keeper: keeperOf(t, server)}
	s.url = "redis://" + s.toRedis.Listen + "/0"
	s.open(replicas, dispatchers)
	return s
}

// newStageOn starts replicas, with these flags, and dispatchers on a Redis that is there already, and has no wire.
func newStageOn(t *testing.T, url string, replicas, dispatchers int, flags ...string) *stage {
	t.Helper()
	s := &stage{t: t, url: url, flags: flags}
	s.open(replicas, dispatchers)
	return s
}

func (s *stage) open(replicas, dispatchers int) {
	s.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	s.must(shared.kube.Create(s.t.Context(), namespace))
	s.namespace = namespace.Name
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
	})
}

// way lays one to the Kubernetes API for an account of the data plane.
func (s *stage) way(account string) (toKube *kubeproxy.Proxy, kubeconfig string) {
	s.t.Helper()
	user, err := shared.account(account)
	s.must(err)
	toKube, err = kubeproxy.Start(user.Config())
	s.must(err)
	s.t.Cleanup(toKube.Close)
	kubeconfig, err = toKube.Kubeconfig(s.t.TempDir(), account)
	s.must(err)
	return toKube, kubeconfig
}

func (s *stage) addReplica(n int) {
	s.t.Helper()
	toKube, kubeconfig := s.way(apiserverAccount)
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

func (s *stage) addDispatcher(n int) {
	s.t.Helper()
	toKube, kubeconfig := s.way(dispatcherAccount)
	ops := s.address()
	d := &process{name: fmt.Sprintf("dispatcher-%d", n+1), ops: ops, toKube: toKube, args: []string{
		"dispatcher", "--kubeconfig", kubeconfig, "--redis-url", s.url, "--ops-address", ops,
		"--lease", "20s", "--webhook-allow-http", "--webhook-allow-cidrs", "127.0.0.0/8",
	}}
	s.t.Cleanup(d.kill)
	d.restart(s.t)
	s.dispatchers = append(s.dispatchers, d)
}

func (s *stage) address() string {
	s.t.Helper()
	address, err := freeAddress()
	s.must(err)
	return address
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// merchant applies a Merchant that the options change.
func (s *stage) merchant(name string, change ...func(*v1alpha1.Merchant)) *v1alpha1.Merchant {
	s.t.Helper()
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "Acme " + name,
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 10000, Burst: 100000},
		},
	}
	for _, c := range change {
		c(merchant)
	}
	if err := shared.kube.Create(s.t.Context(), merchant); err != nil {
		s.t.Fatal(err)
	}
	return merchant
}

// apiKey applies an ApiKey and returns the delivered plaintext, once every replica takes it.
func (s *stage) apiKey(name, merchant string) string {
	s.t.Helper()
	key := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: merchant},
			Delivery:    &v1alpha1.Delivery{SecretName: name + "-key"},
		},
	}
	if err := shared.kube.Create(s.t.Context(), key); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, name+" is Ready", func() bool {
		if err := shared.get(s.t.Context(), s.namespace, name, key); err != nil {
			s.t.Fatal(err)
		}
		return meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.ReadyCondition)
	})
	plain := s.delivered(name+"-key", "apiKey")
	for _, r := range s.replicas {
		s.accepts(r, plain)
	}
	return plain
}

// accepts waits until a replica takes the key.
func (s *stage) accepts(r *replica, key string) {
	s.t.Helper()
	client := newCaller()
	eventually(s.t, r.name+" takes the key", func() bool {
		got, err := client.call(r.public, "GET", me, key, "")
		return err == nil && got.status == 200
	})
}

// delivered waits for a Secret and returns what it holds.
func (s *stage) delivered(name, field string) string {
	s.t.Helper()
	var secret corev1.Secret
	eventually(s.t, name+" is delivered", func() bool {
		err := shared.get(s.t.Context(), s.namespace, name, &secret)
		if client.IgnoreNotFound(err) != nil {
			s.t.Fatal(err)
		}
		return err == nil
	})
	return shared.secret(string(secret.Data[field]))
}

// space is what the keys of a merchant's state begin with.
func space(merchant *v1alpha1.Merchant) string {
	return bucketTag(published.ID(merchant.UID))
}
