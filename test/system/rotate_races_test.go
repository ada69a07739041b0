package system

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// TestARotationOverHTTPAndATriggerAtOnce lets both race. If the trigger comes first, the presented key is in its overlap, from
// which nobody rotates: it gets 401 and goes on working. Either way each rotation counts once.
func TestARotationOverHTTPAndATriggerAtOnce(t *testing.T) {
	const rounds = 10
	s := newTenant(t)
	s.Merchant("coffee")
	for round := range rounds {
		apiKey, _ := s.ApiKey(fmt.Sprint("till-", round), "coffee")
		key := s.fresh(apiKey, fmt.Sprintf("fresh %d", round))
		var both sync.WaitGroup
		var rotated fixture.Answer
		both.Go(func() { rotated = s.call(round%len(shared.replicas), http.MethodPost, rotate, key, "") })
		s.Change(apiKey, func() { apiKey.Spec.Rotation.Trigger = fmt.Sprintf("race %d", round) })
		both.Wait()
		generation := int64(3) // the first key, a fresh one and that of the trigger
		if rotated.Status == http.StatusUnauthorized {
			s.want(s.call(round%len(shared.replicas), http.MethodGet, me, key, ""), http.StatusOK)
		} else {
			s.want(rotated, http.StatusOK)
			generation++
		}
		s.AwaitReady(apiKey)
		if got := s.record(apiKey).Generation; got != generation {
			t.Fatalf("round %d: generation %d, want %d", round, got, generation)
		}
	}
}

// fresh changes the trigger and returns the key that is delivered for it, once every replica takes it.
func (s tenant) fresh(apiKey *v1alpha1.ApiKey, trigger string) string {
	s.T.Helper()
	s.Change(apiKey, func() { apiKey.Spec.Rotation.Trigger = trigger })
	s.AwaitReady(apiKey)
	key := s.Delivered(apiKey.Name+"-key", "apiKey")
	s.eventuallyEverywhere(key, http.StatusOK)
	return key
}

func (s tenant) publishedSecret(apiKey *v1alpha1.ApiKey) *corev1.Secret {
	s.T.Helper()
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: kubetest.CredentialsNamespace, Name: published.KeyName(published.ID(apiKey.UID))}
	if err := s.Kube.Get(s.T.Context(), name, secret); err != nil {
		s.T.Fatal(err)
	}
	return secret
}

func (s tenant) record(apiKey *v1alpha1.ApiKey) published.KeyRecord {
	s.T.Helper()
	record, err := published.DecodeKey(s.publishedSecret(apiKey))
	if err != nil {
		s.T.Fatal(err)
	}
	return record
}

// TestTheTriggerRepairsARotationThatCrashed plays a replica that dies in the middle of a rotation:
// before it wrote the override, and before it answered. Either way nobody has the key in force.
func TestTheTriggerRepairsARotationThatCrashed(t *testing.T) {
	crashes := map[string]func(tenant, *v1alpha1.ApiKey, string){
		"between the swap and the override": func(s tenant, apiKey *v1alpha1.ApiKey, _ string) { s.swapOnly(apiKey) },
		"between the override and the answer": func(s tenant, _ *v1alpha1.ApiKey, key string) {
			s.want(s.call(0, http.MethodPost, rotate, key, ""), http.StatusOK) // the answer is thrown away
		},
	}
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			s := newTenant(t)
			s.Merchant("coffee")
			apiKey, _ := s.ApiKey("till", "coffee")
			lost := s.fresh(apiKey, "before")
			crash(s, apiKey, lost)
			s.eventuallyEverywhere(lost, http.StatusUnauthorized)
			s.Eventually("the stale delivered Secret is removed", func() bool {
				return s.Gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "till-key"}})
			})
			found := s.fresh(apiKey, "the way back")
			for replica := range shared.replicas {
				s.want(s.call(replica, http.MethodGet, me, found, ""), http.StatusOK)
				s.want(s.call(replica, http.MethodGet, me, lost, ""), http.StatusUnauthorized)
			}
		})
	}
}

// swapOnly replaces the published key as the API does, and does nothing of what follows.
func (s tenant) swapOnly(apiKey *v1alpha1.ApiKey) {
	s.T.Helper()
	record := s.record(apiKey)
	next, err := apikey.New(record.KeyID)
	if err != nil {
		s.T.Fatal(err)
	}
	now := record.Current.CreatedAt
	current := published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: now}
	encoded, err := published.EncodeKey(kubetest.CredentialsNamespace, record.Rotated(current, v1alpha1.RotationAPI, 0, now))
	if err != nil {
		s.T.Fatal(err)
	}
	secret := s.publishedSecret(apiKey)
	s.Change(secret, func() { secret.Data = encoded.Data })
}
