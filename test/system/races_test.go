package system

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// TestARotationOverHTTPAndATriggerAtOnce lets both race. If the trigger comes first, the presented key is in its overlap, from
// which nobody rotates: it gets 401 and goes on working. Either way each rotation counts once.
func TestARotationOverHTTPAndATriggerAtOnce(t *testing.T) {
	const rounds = 10
	s := newScene(t)
	s.merchant("coffee")
	apiKey, _ := s.apiKey("till", "coffee")
	generation := int64(1)
	for round := range rounds {
		key := s.fresh(apiKey, fmt.Sprintf("fresh %d", round))
		var both sync.WaitGroup
		var rotated answer
		both.Go(func() { rotated = s.call(round%len(shared.replicas), http.MethodPost, rotate, key, "") })
		s.change(apiKey, func() { apiKey.Spec.Rotation.Trigger = fmt.Sprintf("race %d", round) })
		both.Wait()
		generation += 2 // a fresh key and the trigger
		if rotated.status == http.StatusUnauthorized {
			s.want(s.call(round%len(shared.replicas), http.MethodGet, me, key, ""), http.StatusOK)
		} else {
			s.want(rotated, http.StatusOK)
			generation++
		}
		s.waitReady(apiKey, conditionsOf(apiKey))
		if got := s.record(apiKey).Generation; got != generation {
			t.Fatalf("round %d: generation %d, want %d", round, got, generation)
		}
	}
}

// fresh changes the trigger and returns the key that is delivered for it, once every replica takes it.
func (s scene) fresh(apiKey *v1alpha1.ApiKey, trigger string) string {
	s.t.Helper()
	s.change(apiKey, func() { apiKey.Spec.Rotation.Trigger = trigger })
	s.waitReady(apiKey, conditionsOf(apiKey))
	key := s.delivered(apiKey.Name + "-key")
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusOK)
	}
	return key
}

func (s scene) publishedSecret(apiKey *v1alpha1.ApiKey) *corev1.Secret {
	s.t.Helper()
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: credentialsNamespace, Name: published.KeyName(published.ID(apiKey.UID))}
	if err := shared.kube.Get(s.t.Context(), name, secret); err != nil {
		s.t.Fatal(err)
	}
	return secret
}

func (s scene) record(apiKey *v1alpha1.ApiKey) published.KeyRecord {
	s.t.Helper()
	record, err := published.DecodeKey(s.publishedSecret(apiKey))
	if err != nil {
		s.t.Fatal(err)
	}
	return record
}

// TestTheTriggerRepairsARotationThatCrashed plays a replica that dies in the middle of a rotation:
// before it wrote the override, and before it answered. Either way nobody has the key in force.
func TestTheTriggerRepairsARotationThatCrashed(t *testing.T) {
	crashes := map[string]func(scene, *v1alpha1.ApiKey, string){
		"between the swap and the override": func(s scene, apiKey *v1alpha1.ApiKey, _ string) { s.swapOnly(apiKey) },
		"between the override and the answer": func(s scene, _ *v1alpha1.ApiKey, key string) {
			s.want(s.call(0, http.MethodPost, rotate, key, ""), http.StatusOK) // the answer is thrown away
		},
	}
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.merchant("coffee")
			apiKey, _ := s.apiKey("till", "coffee")
			lost := s.fresh(apiKey, "before")
			crash(s, apiKey, lost)
			for replica := range shared.replicas {
				s.eventuallyStatus(replica, lost, http.StatusUnauthorized)
			}
			s.eventually("the stale delivered Secret is removed", func() bool {
				err := shared.kube.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "till-key"}, &corev1.Secret{})
				return client.IgnoreNotFound(err) == nil && err != nil
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
func (s scene) swapOnly(apiKey *v1alpha1.ApiKey) {
	s.t.Helper()
	record := s.record(apiKey)
	next, err := apikey.New(record.KeyID)
	if err != nil {
		s.t.Fatal(err)
	}
	now := record.Current.CreatedAt
	current := published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: now}
	encoded, err := published.EncodeKey(credentialsNamespace, record.Rotated(current, v1alpha1.RotationAPI, 0, now))
	if err != nil {
		s.t.Fatal(err)
	}
	secret := s.publishedSecret(apiKey)
	s.change(secret, func() { secret.Data = encoded.Data })
}
