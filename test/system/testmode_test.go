package system

import (
	"net/http"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

func inTestMode(key *v1alpha1.ApiKey) { key.Spec.Mode = v1alpha1.ModeTest }

// A merchant integrates before any rail exists: it charges, settles, gets its webhook, rotates its key. Nothing of that is live, on any
// replica, and the other way round.
func TestTestKey_Integration(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	hooks := newReceiver(t, nil)
	_, live := s.till(subscribe(hooks))
	object, key := s.ApiKey("sandbox", "coffee", inTestMode)
	s.eventuallyEverywhere(key, http.StatusOK)
	secret := s.signingSecret("coffee")
	if !strings.HasPrefix(key, "mk_test_"+object.Status.KeyID) || apikey.IsTest(live) {
		t.Fatalf("the keys are %.20s and %.20s", key, live)
	}

	id, liveID := s.charge(0, key), s.charge(0, live)
	for replica := range shared.replicas {
		for _, foreign := range []struct{ key, id string }{{live, id}, {key, liveID}} {
			s.want(s.call(replica, http.MethodGet, sessions+"/"+foreign.id, foreign.key, ""), http.StatusNotFound)
			s.want(s.cancel(replica, foreign.key, foreign.id), http.StatusNotFound)
			s.want(s.settleTest(replica, foreign.key, foreign.id, ""), http.StatusNotFound)
		}
		s.want(s.settleTest(replica, live, liveID, ""), http.StatusNotFound)
	}
	rail := s.RailToken()
	s.want(s.settle(1, rail, id, report("card-1", "COMPLETED")), http.StatusConflict)
	s.wantStatus(key, id, "PENDING")
	s.wantStatus(live, liveID, "PENDING")

	s.wantApplied(s.settleTest(1, key, id, ""), true)
	s.wantStatus(key, id, "COMPLETED")
	playedID := s.want(s.call(0, http.MethodPost, sessions, key, `{"amountCents":990002}`), http.StatusCreated).Text("sessionId")
	s.Eventually("both events arrive", func() bool { return len(hooks.About(id)) == 1 && len(hooks.About(playedID)) == 1 })
	for about, kind := range map[string]string{id: "session.completed", playedID: "session.failed"} {
		attempt := hooks.About(about)[0]
		s.verify(secret, attempt)
		if want := `{"type":"` + kind + `","livemode":false,`; !strings.HasPrefix(attempt.Body, want) {
			t.Errorf("got %s, want %s…", attempt.Body, want)
		}
	}

	rotated := s.want(s.call(2, http.MethodPost, rotate, key, ""), http.StatusOK).Text("fullKey")
	if !apikey.IsTest(rotated) {
		t.Errorf("a test key is rotated to %.8s", rotated)
	}
	for replica := range shared.replicas {
		s.want(s.call(replica, http.MethodGet, sessions+"/"+id, key, ""), http.StatusUnauthorized)
		s.want(s.call(replica, http.MethodGet, sessions+"/"+id, rotated, ""), http.StatusOK)
		s.want(s.call(replica, http.MethodGet, sessions+"/"+liveID, rotated, ""), http.StatusNotFound)
	}
	s.wantApplied(s.settle(0, rail, liveID, report("card-2", "COMPLETED")), true)
	s.Eventually("the live event arrives", func() bool { return len(hooks.About(liveID)) == 1 })
	if body := hooks.About(liveID)[0].Body; !strings.HasPrefix(body, `{"type":"session.completed","livemode":true,`) {
		t.Errorf("the live event is %s", body)
	}
}

// What stops the live keys of a merchant stops its test keys.
func TestTestKey_EndsWithMerchant(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	merchant := s.Merchant("coffee")
	object, key := s.ApiKey("sandbox", "coffee", inTestMode)
	_, second := s.ApiKey("sandbox-2", "coffee", inTestMode)
	s.eventuallyEverywhere(key, http.StatusOK)
	s.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantSuspended })
	s.eventuallyEverywhere(key, http.StatusForbidden)
	s.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantActive })
	s.Change(object, func() { object.Spec.State = v1alpha1.ApiKeyDisabled })
	s.eventuallyEverywhere(key, http.StatusUnauthorized)
	s.eventuallyEverywhere(second, http.StatusOK)
	s.Change(merchant, func() { merchant.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} })
	s.eventuallyEverywhere(second, http.StatusUnauthorized)
	s.Change(merchant, func() { merchant.Spec.IPAllowlist = nil })
	s.eventuallyEverywhere(second, http.StatusOK)
	s.Delete(merchant)
	s.eventuallyEverywhere(second, http.StatusUnauthorized)
}

// settleTest plays the rail of a test session.
func (s tenant) settleTest(replica int, key, id, body string) fixture.Answer {
	s.T.Helper()
	return s.call(replica, http.MethodPost, "/api/v1/test/sessions/"+id+"/settle", key, body)
}
