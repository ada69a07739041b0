//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// withdrawn is the time after which no replica accepts a key whose ApiKey or Merchant is being deleted.
const withdrawn = 10 * time.Second

// deletionFaults delete ApiKeys and Merchants from which a tenant has taken the operator's finalizer.
func deletionFaults() []fault {
	promised := fmt.Sprintf("no replica accepts the key after %s, whoever holds the object", withdrawn)
	return []fault{
		{"P2", "finalizer stripped, then deleted: the operator is away", promised + ", from the operator's start", tryStripped(operatorAway)},
		{"P2", "finalizer stripped, then deleted: the operator is idle", promised, tryStripped(operatorIdle)},
		{"P2", "finalizer stripped in a loop, then deleted", promised, tryStripped(strippedInLoop)},
	}
}

type stripping int

const (
	operatorAway stripping = iota
	operatorIdle
	strippedInLoop
)

func tryStripped(how stripping) func(*testing.T) (int, string) {
	return func(t *testing.T) (int, string) {
		t.Helper()
		many := 10 * *intensity
		s := deploy(t, 2, 0)
		var doomed []client.Object
		var keys []string
		for n := range many {
			name := fmt.Sprintf("till-%d", n)
			merchant := s.Merchant(name)
			keys = append(keys, s.apiKey(name, name))
			apiKey := &v1alpha1.ApiKey{}
			s.must(shared.get(t.Context(), s.Namespace, name, apiKey))
			doomed = append(doomed, []client.Object{apiKey, merchant}[n%2])
		}
		if how == operatorAway {
			shared.operator.kill()
			t.Cleanup(func() {
				if shared.operator.running == nil {
					shared.operator.restart(t)
				}
			})
		}
		stop := func() {}
		if how == strippedInLoop {
			for _, object := range doomed {
				s.strip(object)
			}
			stop = callers(2, func(_ caller, n, step int) { s.strip(doomed[step%len(doomed)]) })
			defer stop()
		}
		for _, object := range doomed {
			s.strip(object) // at once, before the operator adds its finalizer again
			s.must(shared.Client.Delete(t.Context(), object))
		}
		if how == operatorAway {
			shared.operator.restart(t)
		}
		since := time.Now()
		for _, key := range keys {
			s.awaitRefused(key)
		}
		slowest := time.Since(since)
		if slowest > withdrawn {
			t.Errorf("the last key was refused after %s", slowest)
		}
		stop()
		for n, object := range doomed {
			s.must(shared.get(t.Context(), s.Namespace, object.GetName(), object)) // somebody still holds it
			s.awaitRefused(keys[n])
			s.must(shared.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		}
		return many, fmt.Sprintf("%d ApiKeys and Merchants deleted and still held, the last key refused by both replicas after %.1f s", many, slowest.Seconds())
	}
}

// strip replaces all finalizers of an object by the tenant's own.
func (s *deployment) strip(object client.Object) {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/theirs"]}}`))
	if err := shared.Client.Patch(s.t.Context(), object.DeepCopyObject().(client.Object), patch); err != nil {
		s.t.Error(err)
	}
}

// awaitRefused waits until no replica accepts the key.
func (s *deployment) awaitRefused(key string) {
	s.t.Helper()
	c := newCaller()
	defer c.http.CloseIdleConnections()
	for _, r := range s.replicas {
		eventuallySees(s.t, r.name+" refuses the key", func() (string, bool) {
			got, err := c.call(r.public, http.MethodGet, me, key, "")
			return fmt.Sprintf("%d, %v", got.Status, err), err == nil && got.Status == http.StatusUnauthorized
		})
	}
}
