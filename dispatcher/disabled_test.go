package dispatcher

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

func TestAnEndpointThatIsGoneGetsNothingUntilItIsResumed(t *testing.T) {
	f := newFixture(t)
	answer := http.StatusGone
	shop := newReceiver(t, func(before int, _ *http.Request) int {
		if before == 0 {
			return answer
		}
		return http.StatusOK
	})
	acme := f.endpointAt(shop.URL, 7)
	first := f.event(t, acme.MerchantID)
	d := f.dispatcher(t)
	start(t, d)
	f.awaitBacklog(t, 7, outbox.Backlog{Dead: 1})
	second := f.event(t, acme.MerchantID)
	f.awaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	if n := len(shop.ids()); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
	reasons := map[string]string{}
	for _, letter := range f.deadLetters(t) {
		reasons[letter.Event.ID] = letter.Reason
	}
	if reasons[first] != "gone" || reasons[second] != "endpoint_disabled" {
		t.Errorf("the dead letters' reasons are %v", reasons)
	}
	f.awaitReports(t, "EndpointGone")
	if got := testutil.ToFloat64(d.metrics.endpointsDisabled.WithLabelValues("gone")); got != 1 {
		t.Errorf("counted %v disabled endpoints", got)
	}

	f.moved(acme, "resumed")
	f.awaitReports(t, "EndpointGone", "EndpointChanged")
	third := f.event(t, acme.MerchantID)
	if seen := shop.await(t, 2); seen[1].ID != third {
		t.Errorf("saw %s, want %s", seen[1].ID, third)
	}
	f.awaitReports(t, "EndpointGone", "EndpointChanged", "Healthy")
	f.awaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	if sent, err := f.outbox.Resend(t.Context(), outbox.ResendRequest{IDs: []string{first, second}}); err != nil || sent.Sent != 2 {
		t.Fatalf("sent %+v again: %v", sent, err)
	}
	shop.await(t, 4)
	f.awaitBacklog(t, 7, outbox.Backlog{})
}

// state is what Redis remembers of an endpoint.
func (f fixture) state(t *testing.T, endpoint endpoints.Endpoint) outbox.EndpointState {
	t.Helper()
	found, err := f.outbox.Endpoints(t.Context(), session.BucketOf(endpoint.MerchantID), endpoint.MerchantID)
	if err != nil || len(found.States) != 1 {
		t.Fatalf("found %+v: %v", found, err)
	}
	return found.States[0]
}

// setBack sets a time of an endpoint back.
func (f fixture) setBack(t *testing.T, endpoint endpoints.Endpoint, field string, by time.Duration) {
	t.Helper()
	key := tag(session.BucketOf(endpoint.MerchantID)) + "endpoint:" + endpoint.MerchantID
	at, err := f.redis(t).HGet(t.Context(), key, field).Int64()
	must(t, err)
	must(t, f.redis(t).HSet(t.Context(), key, field, at-by.Milliseconds()).Err())
}

// It must not become a dead letter because nobody has looked after disabled endpoints in between.
func TestAnEventForAResumedEndpointIsDelivered(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.endpointAt(shop.URL, 7)
	f.disable(t, acme)
	f.moved(acme, "resumed")
	id := f.event(t, acme.MerchantID)
	d := f.dispatcher(t)
	d.prepare()
	if _, err := d.lease(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if seen := shop.await(t, 1); seen[0].ID != id {
		t.Errorf("saw %s, want %s", seen[0].ID, id)
	}
	d.queues.close(t.Context())
	if !d.queues.wait(patience) {
		t.Error("the attempt never ended")
	}
	if letters := f.deadLetters(t); len(letters) != 1 { // the one the endpoint was disabled with
		t.Errorf("dead letters: %+v", letters)
	}
}

// disable lets another dispatcher find out that the endpoint is gone, and vanish.
func (f fixture) disable(t *testing.T, endpoint endpoints.Endpoint) {
	t.Helper()
	f.event(t, endpoint.MerchantID)
	leased, err := f.outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
	if err != nil || len(leased.Leases) != 1 {
		t.Fatalf("leased %d events: %v", len(leased.Leases), err)
	}
	failed, err := f.outbox.Failed(t.Context(), leased.Leases[0], outbox.Failure{
		Details: outbox.Details{Reason: "gone"}, Gone: true, Target: endpoint.Target, FailingLimit: time.Hour,
	})
	if err != nil || !failed.Disabled {
		t.Fatalf("%+v, %v", failed, err)
	}
}

func TestAnEndpointThatFailsForTooLongIsDisabled(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusInternalServerError))
	acme := f.endpointAt(shop.URL, 7)
	f.event(t, acme.MerchantID)
	start(t, f.dispatcher(t, func(o *Options) {
		o.FailingLimit = 5 * time.Millisecond
		o.Schedule = Schedule{0, 10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond, time.Hour}
	}))
	f.awaitBacklog(t, 7, outbox.Backlog{Dead: 1})
	eventually(t, "it is reported", func() bool { return slices.Contains(f.reports.reasons(), "EndpointDisabled") })
	if n := len(shop.ids()); n != 2 { // the second was more than the limit after the first
		t.Errorf("%d attempts, want 2", n)
	}
}

func TestAnotherDispatcherMakesAFailedReport(t *testing.T) {
	f := newFixture(t)
	acme := f.endpointAt("http://127.0.0.1:1", 7)
	f.disable(t, acme)
	f.reports.setFail(errors.New("the Kubernetes API is away"))
	start(t, f.dispatcher(t))
	eventually(t, "it has tried", func() bool { return len(f.log.String()) > 0 })
	f.reports.setFail(nil)
	f.awaitReports(t, "EndpointGone")
	start(t, f.dispatcher(t))
	f.moved(acme, "resumed")
	f.awaitReports(t, "EndpointGone", "EndpointChanged") // and none of it again, by the other one or by this one
}

func TestNothingIsReportedOfAMerchantThatIsGone(t *testing.T) {
	f := newFixture(t)
	acme := f.endpointAt("http://127.0.0.1:1", 7)
	f.disable(t, acme)
	f.reports.setFail(errMerchantGone)
	start(t, f.dispatcher(t))
	eventually(t, "that is done with", func() bool {
		return f.state(t, acme).Reported.Reason == "EndpointGone"
	})
}

func TestAWebhookThatIsRemovedIsForgotten(t *testing.T) {
	f := newFixture(t)
	acme := f.endpointAt("http://127.0.0.1:1", 7)
	f.disable(t, acme)
	start(t, f.dispatcher(t))
	f.awaitReports(t, "EndpointGone")
	removed := acme
	removed.URL, removed.Target, removed.Secrets = "", "", nil
	f.index.put(removed)
	f.awaitReports(t, "EndpointGone", "")
	eventually(t, "it is forgotten", func() bool { return f.state(t, acme).Target == "" })
}
