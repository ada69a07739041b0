package system

import (
	"net/http"
	"sync"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func TestARotatedKeyIsDeadEverywhereInTheVeryNextCall(t *testing.T) {
	s := newTenant(t)
	apiKey, key := s.till()
	for round := range 20 {
		rotated := s.want(s.call(round%2, http.MethodPost, rotate, key, ""), http.StatusOK)
		next := rotated.Body["fullKey"].(string)
		for replica := range shared.replicas {
			s.want(s.call(replica, http.MethodGet, me, key, ""), http.StatusUnauthorized)
			s.want(s.call(replica, http.MethodGet, me, next, ""), http.StatusOK)
		}
		key = next
	}
	s.Eventually("the status counts the rotations", func() bool {
		s.AwaitReady(apiKey)
		return apiKey.Status.KeyGeneration == 21 && apiKey.Status.LastRotation.Cause == v1alpha1.RotationAPI
	})
}

func TestOfConcurrentRotationsOneWins(t *testing.T) {
	s := newTenant(t)
	_, key := s.till()
	answers := make([]fixture.Answer, 8)
	var calls sync.WaitGroup
	for i := range answers {
		calls.Go(func() { answers[i] = s.call(i%2, http.MethodPost, rotate, key, "") })
	}
	calls.Wait()
	wins := 0
	for _, got := range answers {
		if got.Status == http.StatusOK {
			wins++
		} else {
			s.want(got, http.StatusUnauthorized)
		}
	}
	if wins != 1 {
		t.Errorf("%d of 8 rotations with one key won, want 1", wins)
	}
}

func TestATriggerDeliversANewKeyWhileTheOldOneLivesOn(t *testing.T) {
	s := newTenant(t)
	s.Merchant("coffee")
	apiKey, old := s.ApiKey("till", "coffee")
	s.Change(apiKey, func() { apiKey.Spec.Rotation.Trigger = "2026-11-21" })
	s.AwaitReady(apiKey)
	next := s.Delivered("till-key", "apiKey")
	if next == old {
		t.Fatal("the trigger delivered no new key")
	}
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, next, http.StatusOK)
		s.want(s.call(replica, http.MethodGet, me, old, ""), http.StatusOK)
	}
	if apiKey.Status.KeyGeneration != 2 || apiKey.Status.ObservedTrigger != "2026-11-21" {
		t.Errorf("status %+v, want generation 2 and the trigger", apiKey.Status)
	}
}
