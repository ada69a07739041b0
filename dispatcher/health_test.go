package dispatcher

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// moved gives the endpoint another target.
func (s scene) moved(endpoint endpoints.Endpoint, target string) endpoints.Endpoint {
	endpoint.Target = target
	s.index.put(endpoint)
	return endpoint
}

func (s scene) awaitTold(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "people are told", func() bool { return slices.Equal(s.told.reasons(), want) })
}

func TestAnEndpointThatIsGoneGetsNothingUntilItIsResumed(t *testing.T) {
	s := newScene(t)
	answer := http.StatusGone
	shop := newReceiver(t, func(before int, _ *http.Request) int {
		if before == 0 {
			return answer
		}
		return http.StatusOK
	})
	acme := s.endpointAt(shop.URL, 7)
	first := s.event(t, acme.MerchantID)
	d := s.dispatcher(t)
	start(t, d)
	s.awaitBacklog(t, 7, store.Backlog{Dead: 1, Troubled: 1})
	second := s.event(t, acme.MerchantID)
	s.awaitBacklog(t, 7, store.Backlog{Dead: 2, Troubled: 1})
	if n := len(shop.all()); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
	reasons := map[string]string{}
	for _, letter := range s.deadLetters(t) {
		reasons[letter.Event.ID] = letter.Reason
	}
	if reasons[first] != "gone" || reasons[second] != "endpoint_disabled" {
		t.Errorf("the dead letters' reasons are %v", reasons)
	}
	s.awaitTold(t, "EndpointGone")
	if got := testutil.ToFloat64(d.metrics.disabledTotal.WithLabelValues("gone")); got != 1 {
		t.Errorf("counted %v disabled endpoints", got)
	}

	s.moved(acme, "resumed")
	s.awaitTold(t, "EndpointGone", "Resumed")
	third := s.event(t, acme.MerchantID)
	if seen := shop.await(t, 2); seen[1].id != third {
		t.Errorf("saw %s, want %s", seen[1].id, third)
	}
	s.awaitBacklog(t, 7, store.Backlog{Dead: 2})
	if sent, err := s.store.Resend(t.Context(), first, second); err != nil || sent != 2 {
		t.Fatalf("sent %d again: %v", sent, err)
	}
	shop.await(t, 4)
	s.awaitBacklog(t, 7, store.Backlog{})
}

// It must not become a dead letter because nobody has looked after disabled endpoints in between.
func TestAnEventForAResumedEndpointIsDelivered(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := s.endpointAt(shop.URL, 7)
	s.disable(t, acme)
	s.moved(acme, "resumed")
	id := s.event(t, acme.MerchantID)
	d := s.dispatcher(t)
	d.prepare(t.Context())
	if _, err := d.lease(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if seen := shop.await(t, 1); seen[0].id != id {
		t.Errorf("saw %s, want %s", seen[0].id, id)
	}
	d.lanes.close()
	if !d.lanes.await(patience) {
		t.Error("the attempt never ended")
	}
	if letters := s.deadLetters(t); len(letters) != 1 { // the one the endpoint was disabled with
		t.Errorf("dead letters: %+v", letters)
	}
}

// disable lets another dispatcher find out that the endpoint is gone, and vanish.
func (s scene) disable(t *testing.T, endpoint endpoints.Endpoint) {
	t.Helper()
	s.event(t, endpoint.MerchantID)
	leased, err := s.store.LeaseEvents(t.Context(), 7, store.LeaseRequest{For: time.Hour, Limit: 1})
	if err != nil || len(leased.Leases) != 1 {
		t.Fatalf("leased %d events: %v", len(leased.Leases), err)
	}
	failed, err := s.store.EventFailed(t.Context(), leased.Leases[0], store.Failure{
		Reason: "gone", Gone: true, Target: endpoint.Target, FailingLimit: time.Hour,
	})
	if err != nil || !failed.Disabled {
		t.Fatalf("%+v, %v", failed, err)
	}
}

func TestAnEndpointThatFailsForTooLongIsDisabled(t *testing.T) {
	s := newScene(t)
	shop := newReceiver(t, always(http.StatusInternalServerError))
	acme := s.endpointAt(shop.URL, 7)
	s.event(t, acme.MerchantID)
	start(t, s.dispatcher(t, func(o *Options) {
		o.FailingLimit = 5 * time.Millisecond
		o.Schedule = Schedule{0, 10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond, time.Hour}
	}))
	s.awaitBacklog(t, 7, store.Backlog{Dead: 1, Troubled: 1})
	s.awaitTold(t, "EndpointFailing")
	if n := len(shop.all()); n != 2 { // the second was more than the limit after the first
		t.Errorf("%d attempts, want 2", n)
	}
}

func TestPeopleAreToldOfWhatAnotherDispatcherCouldNotTell(t *testing.T) {
	s := newScene(t)
	acme := s.endpointAt("http://127.0.0.1:1", 7)
	s.disable(t, acme)
	s.told.setFail(errors.New("the Kubernetes API is away"))
	start(t, s.dispatcher(t))
	eventually(t, "it has tried", func() bool { return len(s.log.String()) > 0 })
	s.told.setFail(nil)
	s.awaitTold(t, "EndpointGone")
	start(t, s.dispatcher(t))
	s.moved(acme, "resumed")
	s.awaitTold(t, "EndpointGone", "Resumed") // and none of it again, by the other one or by this one
}

func TestNobodyIsToldOfAMerchantThatIsGone(t *testing.T) {
	s := newScene(t)
	acme := s.endpointAt("http://127.0.0.1:1", 7)
	s.disable(t, acme)
	s.told.setFail(errNoMerchant)
	start(t, s.dispatcher(t))
	eventually(t, "that is done with", func() bool {
		states, err := s.store.TroubledEndpoints(t.Context(), 7)
		return err == nil && len(states) == 1 && states[0].Told
	})
}

func TestWhatPeopleAreTold(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for want, state := range map[string]store.EndpointState{
		"EndpointGone":    {DisabledAt: at, Cause: store.EndpointGone},
		"EndpointFailing": {DisabledAt: at, Cause: store.EndpointFailing, FailingSince: at.Add(-120 * time.Hour)},
		"Resumed":         {ResumedAt: at},
	} {
		got := healthOf(endpoints.Endpoint{URL: "https://shop.example"}, state)
		if got.reason != want || got.healthy != (want == "Resumed") || !got.since.Equal(at) || got.message == "" {
			t.Errorf("%s: %+v", want, got)
		}
	}
	if got := healthOf(endpoints.Endpoint{}, store.EndpointState{ResumedAt: at}); got != (health{}) {
		t.Errorf("without a webhook: %+v", got)
	}
}

func TestAWebhookThatIsRemovedIsForgotten(t *testing.T) {
	s := newScene(t)
	acme := s.endpointAt("http://127.0.0.1:1", 7)
	s.disable(t, acme)
	start(t, s.dispatcher(t))
	s.awaitTold(t, "EndpointGone")
	removed := acme
	removed.URL, removed.Target, removed.Secrets = "", "", nil
	s.index.put(removed)
	s.awaitTold(t, "EndpointGone", "")
	s.awaitBacklog(t, 7, store.Backlog{Dead: 1})
}
