package system

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API writes it to Redis, a dispatcher publishes it, and the operator shows it.
func TestTheLastUseOfAKeyIsInItsStatus(t *testing.T) {
	s := newTenant(t)
	key, plaintext := s.till()
	before := time.Now()
	s.charge(0, plaintext)
	s.Eventually("the ApiKey says when the key was used", func() bool {
		if err := s.Kube.Get(t.Context(), client.ObjectKeyFromObject(key), key); err != nil {
			t.Fatal(err)
		}
		return key.Status.LastUsedTime != nil
	})
	if used := key.Status.LastUsedTime.Time; used.Before(before.Add(-time.Minute)) || used.After(time.Now().Add(time.Second)) {
		t.Errorf("used at %s, want about %s", used, before)
	}
}
