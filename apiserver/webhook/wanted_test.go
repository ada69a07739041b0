package webhook

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver/store"
	"github.com/merchant-operator/merchant-operator/apiserver/webhook/endpoints"
)

func TestEventsThatNobodyWantsAreDropped(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7) // it has not asked for session.created
	s.create(t, acme.MerchantID, func(n *store.NewSession) { n.TellCreated = true })
	stranger := newMerchantID(7)
	s.sayLongAgo(t, s.event(t, stranger))
	d := s.dispatcher(t)
	start(t, d)
	s.awaitBacklog(t, 7, store.Backlog{})
	if n := len(shop.all()); n != 0 {
		t.Errorf("%d attempts", n)
	}
	for _, kind := range []string{"session.created", "session.cancelled"} {
		eventually(t, "one dropped event of kind "+kind+" is counted", func() bool {
			return testutil.ToFloat64(d.metrics.events.WithLabelValues(kind, outcomeDropped)) == 1
		})
	}
}

// sayLongAgo changes when an event occurred.
func (s scene) sayLongAgo(t *testing.T, id string) {
	t.Helper()
	long := time.Now().Add(-time.Hour).UnixMilli()
	if err := s.redis(t).HSet(t.Context(), tag(7)+"event:"+id, "d", long).Err(); err != nil {
		t.Fatal(err)
	}
}

// A merchant, or its webhook, may be newer than what this dispatcher has heard of.
func TestEventsAreKeptWhileTheIndexMayBeBehind(t *testing.T) {
	s := newScene(t)
	s.index.setAge(2 * time.Hour)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	stranger := newMerchantID(7)
	id := s.event(t, stranger)
	s.sayLongAgo(t, id)
	d := s.dispatcher(t)
	start(t, d)
	eventually(t, "it is put off", func() bool { return testutil.ToFloat64(d.metrics.deferred.WithLabelValues(deferredUnknown)) >= 1 })
	acme.MerchantID = stranger
	s.index.put(acme)
	s.hasten(t, 7, id)
	if seen := shop.await(t, 1); seen[0].id != id {
		t.Errorf("saw %s, want %s", seen[0].id, id)
	}
}

// However old the event is, and however much the index knows.
func TestEventsWaitForAMerchantThatCannotBeRead(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	s.index.put(endpoints.Endpoint{MerchantID: acme.MerchantID, Unreadable: true})
	id := s.event(t, acme.MerchantID)
	s.sayLongAgo(t, id)
	d := s.dispatcher(t)
	start(t, d)
	eventually(t, "it is put off", func() bool { return testutil.ToFloat64(d.metrics.deferred.WithLabelValues(deferredUnreadable)) >= 1 })
	s.index.put(acme)
	s.hasten(t, 7, id)
	if seen := shop.await(t, 1); seen[0].id != id {
		t.Errorf("saw %s, want %s", seen[0].id, id)
	}
}

func TestEventsWaitForTheSigningSecret(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	signed := acme
	acme.Secrets = nil
	s.index.put(acme)
	id := s.event(t, acme.MerchantID)
	d := s.dispatcher(t)
	start(t, d)
	eventually(t, "it is put off", func() bool { return testutil.ToFloat64(d.metrics.deferred.WithLabelValues(deferredUnsigned)) >= 1 })
	if n := len(shop.all()); n != 0 {
		t.Errorf("%d attempts without a signature", n)
	}
	s.index.put(signed)
	s.hasten(t, 7, id)
	if seen := shop.await(t, 1); seen[0].id != id || seen[0].signature == "" {
		t.Errorf("saw %+v, want %s", seen[0], id)
	}
}

func TestASessionNobodyReadsExpiresAndSaysSo(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	d := s.dispatcher(t)
	start(t, d)
	created := s.create(t, acme.MerchantID, func(n *store.NewSession) { n.Lifetime = 20 * time.Millisecond })
	if seen := shop.await(t, 1); seen[0].id != endedEvent(created.ID) {
		t.Errorf("saw %+v", seen[0])
	}
	s.awaitBacklog(t, 7, store.Backlog{})
	if got := testutil.ToFloat64(d.metrics.expired); got != 1 {
		t.Errorf("counted %v expired sessions", got)
	}
}

func TestARotationIsToldOnce(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	key := published.KeyRecord{
		KeyID: "abcdefgh2345", MerchantID: acme.MerchantID, Generation: 3,
		LastRotation: published.RotationEvent{Time: time.Now(), Cause: "API"},
	}
	for range 2 { // two dispatchers see each rotation
		d := s.dispatcher(t)
		start(t, d)
		d.rotations.heard(key, acme.MerchantName)
		eventually(t, "it is recorded", func() bool { return len(d.rotations.unrecorded()) == 0 })
	}
	if seen := shop.await(t, 1); seen[0].id != "evt_key_abcdefgh2345_3" {
		t.Errorf("saw %s", seen[0].id)
	}
	s.awaitBacklog(t, 7, store.Backlog{})
	if n := len(shop.all()); n != 1 {
		t.Errorf("told %d times", n)
	}
}
