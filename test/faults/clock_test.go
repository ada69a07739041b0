//go:build faults

package faults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// clockFaults set the clock of a role wrong.
func clockFaults() []fault {
	return []fault{
		{"P2", "clock an hour ahead: operator", "no overlap ends early, no schedule rotates, and the log says so", tryOperatorAhead},
		{"P2", "clock an hour ahead, and one an hour behind: replica", "every replica accepts and refuses the same keys, until their ends by the clock of Redis", tryWrongReplicas},
		{"P1 P2", "clock an hour ahead: Redis, after a failover", "pending sessions and keys end an hour early, nothing is charged twice, no dead key revives", tryRedisAhead},
	}
}

// hourAhead is a clock.
type hourAhead struct{}

func (hourAhead) Now() time.Time                    { return time.Now().Add(time.Hour) }
func (c hourAhead) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func tryOperatorAhead(t *testing.T) (int, string) {
	t.Helper()
	many := 5 * *intensity
	s := deploy(t, 2, 0)
	s.Merchant("coffee")
	var keys []*v1alpha1.ApiKey
	var old, fresh []string
	for n := range many {
		name := fmt.Sprintf("till-%d", n)
		key, plain := s.ApiKey(name, "coffee", func(k *v1alpha1.ApiKey) {
			k.Spec.Rotation.OverlapSeconds = new(int32(1800))
			k.Spec.Rotation.EverySeconds = new(int32(3600))
		})
		keys, old = append(keys, key), append(old, shared.secret(plain))
		fresh = append(fresh, s.trigger(name, "b"))
	}
	shared.operator.kill()
	t.Cleanup(func() { shared.operator.restart(t) })
	stop := s.operatorInProcess(func(o *controllers.Options) { o.Clock = hourAhead{} })
	defer stop()
	eventually(t, "it says so", func() bool {
		return strings.Contains(shared.logs.String(), "stopped all work that depends on the time")
	})
	for _, key := range keys { // it works on each of them
		s.must(shared.get(t.Context(), s.Namespace, key.Name, key))
		before := key.DeepCopy()
		key.Spec.Rotation.OverlapSeconds = new(int32(1801))
		s.must(shared.Client.Patch(t.Context(), key, client.MergeFrom(before)))
		s.AwaitReady(key)
		if key.Status.KeyGeneration != 2 {
			t.Errorf("%s was rotated: generation %d", key.Name, key.Status.KeyGeneration)
		}
	}
	for n := range keys {
		for _, r := range s.replicas {
			s.mustCall(http.StatusOK, r.public, http.MethodGet, me, old[n], "")
			s.mustCall(http.StatusOK, r.public, http.MethodGet, me, fresh[n], "")
		}
	}
	return many, fmt.Sprintf("%d keys with an overlap of 30 minutes and a schedule of an hour: all old and new ones accepted, none rotated", many)
}

// tryWrongReplicas rotates, deletes and lets keys expire, beside replicas whose clocks are wrong.
func tryWrongReplicas(t *testing.T) (int, string) {
	t.Helper()
	many := 5 * *intensity
	s := deploy(t, 1, 0)
	s.Merchant("coffee")
	publics := []string{s.replicas[0].public, s.replicaAhead(time.Hour), s.replicaAhead(-time.Hour)}
	everywhere := func(what string, status int, keys ...string) {
		t.Helper()
		for _, public := range publics {
			for _, key := range keys {
				eventuallySees(t, what, func() (string, bool) {
					got, err := newCaller().call(public, http.MethodGet, me, key, "")
					return fmt.Sprint(got.Status, err), err == nil && got.Status == status
				})
			}
		}
	}
	for n := range many {
		name := fmt.Sprintf("till-%d", n)
		key, plain := s.ApiKey(name, "coffee", func(k *v1alpha1.ApiKey) { k.Spec.Rotation.OverlapSeconds = new(int32(1800)) })
		old := shared.secret(plain)
		fresh := s.trigger(name, "b")
		everywhere("a key in its overlap of 30 minutes is accepted", http.StatusOK, old, fresh)
		rotated := shared.secret(s.mustCall(http.StatusOK, publics[n%len(publics)], http.MethodPost, rotate, fresh, "").Text("fullKey"))
		for _, public := range publics { // after the 200 there is nothing to wait for
			s.mustCall(http.StatusOK, public, http.MethodGet, me, rotated, "")
			s.mustCall(http.StatusUnauthorized, public, http.MethodGet, me, old, "")
			s.mustCall(http.StatusUnauthorized, public, http.MethodGet, me, fresh, "")
		}
		expires := func(in time.Duration) {
			s.must(shared.get(t.Context(), s.Namespace, name, key))
			before := key.DeepCopy()
			key.Spec.ExpiresAt = new(metav1.NewTime(time.Now().Add(in)))
			s.must(shared.Client.Patch(t.Context(), key, client.MergeFrom(before)))
			s.AwaitReady(key)
		}
		expires(30 * time.Minute)
		everywhere("a key that expires in 30 minutes is accepted", http.StatusOK, rotated)
		expires(3 * time.Second)
		everywhere("an expired key is refused", http.StatusUnauthorized, rotated)
		s.must(shared.Client.Delete(t.Context(), key))
		everywhere("a deleted key is refused", http.StatusUnauthorized, rotated)
	}
	return many, fmt.Sprintf("%d keys in an overlap, rotated, expiring, expired and deleted: the same answers of 3 replicas", many)
}

// replicaAhead runs a replica in this process whose clock is ahead by so much, until the test ends.
func (s *deployment) replicaAhead(ahead time.Duration) (public string) {
	s.t.Helper()
	options := apiserver.DefaultOptions()
	_, options.Kubeconfig = s.proxy(fixture.APIServerAccount)
	options.RedisURL, options.DrainDelay = s.url, 0
	options.PublicAddress, options.InternalAddress, options.Ops.Address, options.Log = s.address(), s.address(), s.address(), shared.logger()
	options.Now = func() time.Time { return time.Now().Add(ahead) }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- apiserver.Run(ctx, options) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	eventually(s.t, "a replica with another clock is ready", func() bool { return (&process{ops: options.Ops.Address}).ready() })
	return "http://" + options.PublicAddress
}

// tryRedisAhead fails over to a Redis whose clock is an hour ahead.
func tryRedisAhead(t *testing.T) (int, string) {
	t.Helper()
	p := watchedBySentinelsWith(t, func(t *testing.T, args ...string) member {
		t.Helper()
		server := redistest.StartAhead(t, time.Hour, args...)
		return member{server, newKeeper(t, server)}
	})
	master, successor := p.roles(t, 0)
	s := deployOn(t, p.url, 2, 0)
	s.Merchant("coffee")
	_, briefPlain := s.ApiKey("brief", "coffee", func(k *v1alpha1.ApiKey) { k.Spec.Rotation.OverlapSeconds = new(int32(1800)) })
	briefKey := shared.secret(briefPlain)
	_, longPlain := s.ApiKey("long", "coffee", func(k *v1alpha1.ApiKey) { k.Spec.Rotation.OverlapSeconds = new(int32(7200)) })
	longKey := shared.secret(longPlain)
	s.trigger("brief", "b")
	key := s.trigger("long", "b")
	dead := s.apiKey("dead", "coffee")
	live := shared.secret(s.mustCall(http.StatusOK, s.replicas[0].public, http.MethodPost, rotate, dead, "").Text("fullKey"))
	const many = 20
	charge := func(n int) fixture.Answer {
		return s.mustCall(http.StatusCreated, s.replicas[n%2].public, http.MethodPost, sessions, key, `{"amountCents":1250}`, "Idempotency-Key", fmt.Sprint("order-", n))
	}
	ids := map[string]bool{}
	for n := range many {
		ids[charge(n).Text("sessionId")] = true
	}
	s.must(master.keeper.Wait(t.Context(), 1, fixture.Patience).Err())
	master.Kill()
	p.agreed(t, 0, successor)
	s.acceptedEverywhere(key)
	s.acceptedEverywhere(live)
	s.acceptedEverywhere(longKey)
	for n := range many {
		if got := charge(n); !ids[got.Text("sessionId")] || got.Text("status") != "EXPIRED" {
			t.Errorf("order %d again: %s of session %s", n, got.Text("status"), got.Text("sessionId"))
		}
	}
	for _, r := range s.replicas {
		s.mustCall(http.StatusUnauthorized, r.public, http.MethodGet, me, dead, "")
		s.mustCall(http.StatusUnauthorized, r.public, http.MethodGet, me, briefKey, "")
	}
	if got := charge(many); got.Text("status") != "PENDING" || ids[got.Text("sessionId")] {
		t.Errorf("a new order is %s", got.Text("status"))
	}
	return many, fmt.Sprintf("%d sessions of 15 minutes expired, each charge repeated got its own; an overlap of 30 minutes ended, one of 2 hours did not", many)
}

// operatorInProcess runs an operator in this process, in place of the shared one, until stop.
func (s *deployment) operatorInProcess(change func(*controllers.Options)) (stop func()) {
	s.t.Helper()
	kubeconfig, err := shared.Kubeconfig(fixture.OperatorAccount)
	s.must(err)
	options := controllers.DefaultOptions()
	options.Kubeconfig, options.LeaderElect, options.Log = kubeconfig, false, shared.logger()
	options.CredentialsNamespace = kubetest.CredentialsNamespace
	options.Ops.Address = s.address()
	change(&options)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- controllers.Run(ctx, options) }()
	return func() {
		cancel()
		s.must(<-ended)
	}
}
