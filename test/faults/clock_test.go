//go:build faults

package faults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// clockFaults set the clock of a role wrong.
func clockFaults() []fault {
	return []fault{
		{"P2", "clock an hour ahead: operator", "no overlap ends early, no schedule rotates, and it says so", tryOperatorAhead},
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
