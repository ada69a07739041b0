package system

import (
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestAReceiverThatFailsIsAskedAgainWithTheSame(t *testing.T) {
	s := newScene(t)
	hooks := newReceiver(t, http.StatusInternalServerError, http.StatusServiceUnavailable)
	s.merchant("coffee", told(hooks))
	_, key := s.apiKey("till", "coffee")
	s.eventuallyStatus(0, key, http.StatusOK)
	secret := s.signingSecret("coffee")
	id := s.charge(0, key)
	s.want(s.cancel(0, key, id), http.StatusOK)

	s.eventually("three attempts", func() bool { return len(hooks.about(id)) >= 3 })
	attempts := hooks.about(id)
	if len(attempts) != 3 {
		t.Errorf("%d attempts, want 3", len(attempts))
	}
	for _, attempt := range attempts {
		s.verify(secret, attempt)
		if attempt.id == "" || attempt.id != attempts[0].id || attempt.body != attempts[0].body {
			t.Errorf("attempt %s %s\ndiffers from %s %s", attempt.id, attempt.body, attempts[0].id, attempts[0].body)
		}
	}
}

// A merchant is told of a creation only if it asked, and of nothing it did not ask for.
func TestAMerchantIsToldWhatItAskedFor(t *testing.T) {
	s := newScene(t)
	hooks := newReceiver(t)
	s.merchant("coffee", told(hooks, v1alpha1.EventSessionCreated, v1alpha1.EventSessionCompleted))
	_, key := s.apiKey("till", "coffee")
	s.eventuallyStatus(0, key, http.StatusOK)
	cancelled := s.charge(0, key)
	s.want(s.cancel(0, key, cancelled), http.StatusOK)
	settled := s.charge(0, key)
	s.wantApplied(s.settle(0, s.rail(), settled, report("card-1", "COMPLETED")), true)
	s.eventually("the other session's events arrive", func() bool { return len(hooks.types(settled)) == 2 })
	s.eventually("its creation is told", func() bool { return len(hooks.types(cancelled)) == 1 })
	if types := hooks.types(cancelled); types[0] != "session.created" {
		t.Errorf("told of %v", types)
	}
}

// After a rotation of the signing secret both sign, so that the merchant can change over in its time.
func TestARotatedSigningSecretSignsBesideTheOldOne(t *testing.T) {
	s := newScene(t)
	hooks := newReceiver(t)
	merchant := s.merchant("coffee", told(hooks))
	_, key := s.apiKey("till", "coffee")
	s.eventuallyStatus(0, key, http.StatusOK)
	old := s.signingSecret("coffee")
	s.change(merchant, func() { merchant.Spec.Webhook.RotationTrigger = "again" })
	var fresh string
	s.eventually("another secret is delivered", func() bool { fresh = s.signingSecret("coffee"); return fresh != old })

	s.eventually("an event is signed with both", func() bool {
		id := s.charge(0, key)
		s.want(s.cancel(0, key, id), http.StatusOK)
		s.eventually("the merchant is told", func() bool { return len(hooks.about(id)) > 0 })
		told := hooks.about(id)[0]
		s.verify(old, told) // at any time in this day
		return len(told.header.Get("Webhook-Signature")) > 60
	})
	id := s.charge(0, key)
	s.want(s.cancel(0, key, id), http.StatusOK)
	s.eventually("the merchant is told", func() bool { return len(hooks.about(id)) > 0 })
	s.verify(fresh, hooks.about(id)[0])
}

func TestRotatedKeysAreTold(t *testing.T) {
	s := newScene(t)
	hooks := newReceiver(t)
	s.merchant("coffee", told(hooks))
	apiKey, key := s.apiKey("till", "coffee")
	s.eventuallyStatus(0, key, http.StatusOK)
	s.want(s.call(0, http.MethodPost, rotate, key, ""), http.StatusOK)
	id := published.ID(apiKey.UID)
	s.eventually("the merchant is told", func() bool { return len(hooks.types(id)) == 1 })
	if types := hooks.types(id); types[0] != "key.rotated" {
		t.Errorf("told of %v", types)
	}
}
