//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// fairnessFaults use up what the Kubernetes API shares among its callers, with config/flowschema-tenants.
func fairnessFaults() []fault {
	return []fault{
		{"P2", "a neighbour changes ApiKeys of a megabyte without end", "no replica accepts a key 5 s after another tenant has disabled it", tryFatChurn},
		{"P2", "a neighbour begins writes to the Kubernetes API and never ends them", "no replica accepts a key of another tenant 10 s after that has deleted it, or 5 s after an administrator has disabled it", tryOpenWrites},
	}
}

var disabled = client.RawPatch(types.MergePatchType, []byte(`{"spec":{"state":"Disabled"}}`))

// boundTenants lets tenants have few seats of the Kubernetes API until the test ends.
func boundTenants(t *testing.T) {
	t.Helper()
	level := repository.Path("config", "flowschema-tenants")
	if _, err := shared.Kubectl("", "apply", "-k", level); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := shared.Kubectl("", "delete", "-k", level); err != nil {
			t.Error(err)
		}
	})
}

// tryFatChurn disables keys, each with the account of its own tenant.
func tryFatChurn(t *testing.T) (int, string) {
	t.Helper()
	boundTenants(t)
	s := deploy(t, 2, 0)
	account, neighbour := s.pipeline()
	account.QPS = -1
	attacker, err := client.New(account, client.Options{Scheme: shared.Client.Scheme()})
	s.must(err)
	neighbour.Merchant("bait")
	var fat []*v1alpha1.ApiKey
	for n := range 40 {
		key := &v1alpha1.ApiKey{
			ObjectMeta: metav1.ObjectMeta{Namespace: neighbour.Namespace, Name: fmt.Sprint("fat-", n)},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "bait"}, Delivery: &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}},
		}
		fatten(key)
		s.must(attacker.Create(t.Context(), key))
		fat = append(fat, key)
	}
	tenant, own := s.tenant()
	own.Merchant("coffee")
	plaintexts := map[string]string{}
	for n := range 4 * *intensity {
		name := fmt.Sprint("till-", n)
		plaintexts[name] = own.apiKey(name, "coffee")
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute*time.Duration(*intensity)) // however long the keys take
	var writes atomic.Int64
	wait := callers(32, func(_ caller, n, step int) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"step":"%d-%d"}}}`, n, step))
		if attacker.Patch(ctx, fat[(32*step+n)%len(fat)].DeepCopy(), patch) == nil {
			writes.Add(1)
		}
	})
	defer func() {
		cancel()
		wait()
	}()
	eventually(t, "the neighbour has written each ApiKey", func() bool { return writes.Load() > int64(2*len(fat)) })
	var slowest time.Duration
	for name, plaintext := range plaintexts {
		s.must(tenant.Patch(t.Context(), &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: name}}, disabled))
		began := time.Now()
		s.awaitRefused(plaintext)
		if slowest = max(slowest, time.Since(began)); slowest > disabledWithin {
			t.Fatalf("a key was accepted for %s after it was disabled", slowest)
		}
	}
	return len(plaintexts), fmt.Sprintf("refused by 2 replicas after %.1f s at most, beside %d writes", slowest.Seconds(), writes.Load())
}

// tryOpenWrites deletes and disables keys while a neighbour's writes have all the seats of tenants.
func tryOpenWrites(t *testing.T) (int, string) {
	t.Helper()
	boundTenants(t)
	const many = 64 // more than there are seats
	s := deploy(t, 2, 0)
	tenant, own := s.tenant()
	own.Merchant("coffee")
	deleted, switchedOff := own.apiKey("deleted", "coffee"), own.apiKey("disabled", "coffee")
	account, neighbour := s.pipeline()
	attacker, err := rest.HTTPClientFor(account)
	s.must(err)
	apiKeys := strings.TrimSuffix(account.Host, "/") + "/apis/merchant-operator.io/v1alpha1/namespaces/" + neighbour.Namespace + "/apikeys"
	eventually(t, "the neighbour has its rights", func() bool {
		answer, err := attacker.Get(apiKeys)
		s.must(err)
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var open sync.WaitGroup
	defer open.Wait()
	defer cancel()
	for range many {
		open.Go(func() {
			body, end := io.Pipe()
			defer func() { _ = end.Close() }()
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, apiKeys, body)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Content-Type", "application/json")
			if answer, err := attacker.Do(request); err == nil { // 429, if even its queue was full
				_ = answer.Body.Close()
			}
		})
	}
	object := func(name string) *v1alpha1.ApiKey {
		return &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: name}}
	}
	eventually(t, "no seat is free for a tenant's write", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return errors.Is(tenant.Patch(ctx, object("disabled"), disabled, client.DryRunAll), context.DeadlineExceeded)
	})

	began := time.Now()
	s.must(shared.Client.Patch(t.Context(), object("disabled"), disabled))
	s.awaitRefused(switchedOff)
	tookDisabled := time.Since(began)
	began = time.Now()
	s.must(tenant.Delete(t.Context(), object("deleted")))
	s.awaitRefused(deleted)
	tookDeleted := time.Since(began)
	if tookDisabled > disabledWithin || tookDeleted > withdrawn {
		t.Errorf("a disabled key was accepted for %s, a deleted one for %s", tookDisabled, tookDeleted)
	}
	return many, fmt.Sprintf("2 replicas refused the disabled key after %d ms, the deleted one after %d ms", tookDisabled.Milliseconds(), tookDeleted.Milliseconds())
}
