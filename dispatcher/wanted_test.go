package dispatcher

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

func TestEventsThatNobodyWantsAreDropped(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7) // it has not asked for session.created
	s.create(t, acme.MerchantID, func(n *store.NewSession) { n.TellCreated = true })
	gone := newMerchantID(7)
	s.index.put(endpoints.Endpoint{MerchantID: gone, State: endpoints.Withdrawn})
	s.event(t, gone)
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

// What was published of a merchant may be lost, however old the event is and whatever the watches have heard since.
func TestEventsWaitForAMerchantThatNobodyWithdrew(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	stranger := newMerchantID(7)
	id := s.event(t, stranger)
	s.sayLongAgo(t, id)
	d := s.dispatcher(t)
	start(t, d)
	eventually(t, "it is put off", func() bool { return testutil.ToFloat64(d.metrics.deferred.WithLabelValues(deferredUnknown)) >= 1 })
	eventually(t, "the log says so", func() bool { return strings.Contains(s.log.String(), stranger) })
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
	s.index.put(endpoints.Endpoint{MerchantID: acme.MerchantID, State: endpoints.Undecodable})
	id := s.event(t, acme.MerchantID)
	s.sayLongAgo(t, id)
	d := s.dispatcher(t)
	start(t, d)
	eventually(t, "it is put off", func() bool { return testutil.ToFloat64(d.metrics.deferred.WithLabelValues(deferredUndecodable)) >= 1 })
	s.index.put(acme)
	s.hasten(t, 7, id)
	if seen := shop.await(t, 1); seen[0].id != id {
		t.Errorf("saw %s, want %s", seen[0].id, id)
	}
}

// In a rolling upgrade newer events are left to newer dispatchers.
func TestEventsOfAnUnknownKindAreLeftToANewerDispatcher(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	id := s.event(t, acme.MerchantID)
	record := tag(7) + "event:" + id
	if err := s.redis(t).HSet(t.Context(), record, "k", "session.refunded").Err(); err != nil {
		t.Fatal(err)
	}
	d := s.dispatcher(t)
	start(t, d)
	eventually(t, "it is put off", func() bool { return testutil.ToFloat64(d.metrics.deferred.WithLabelValues(deferredUnsupported)) >= 1 })
	s.awaitBacklog(t, 7, store.Backlog{Due: 1})
	if n := len(shop.all()); n != 0 {
		t.Errorf("%d attempts", n)
	}
	if err := s.redis(t).HSet(t.Context(), record, "k", "session.cancelled").Err(); err != nil { // as if the dispatcher were newer
		t.Fatal(err)
	}
	s.hasten(t, 7, id)
	if seen := shop.await(t, 1); seen[0].id != id {
		t.Errorf("saw %s, want %s", seen[0].id, id)
	}
}

func TestAnEventThatWaitsForTooLongIsCounted(t *testing.T) {
	s := newScene(t)
	id := s.event(t, newMerchantID(7))
	if err := s.redis(t).Del(t.Context(), tag(7)+"event:"+id).Err(); err != nil { // as Redis does after 30 days
		t.Fatal(err)
	}
	d := s.dispatcher(t)
	start(t, d)
	s.awaitBacklog(t, 7, store.Backlog{})
	eventually(t, "it is counted", func() bool { return testutil.ToFloat64(d.metrics.events.WithLabelValues("", outcomeExpired)) == 1 })
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
