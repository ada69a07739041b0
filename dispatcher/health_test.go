package dispatcher

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// moved gives the endpoint another target.
func (f fixture) moved(endpoint endpoints.Endpoint, target string) endpoints.Endpoint {
	endpoint.Target = target
	f.index.put(endpoint)
	return endpoint
}

func (f fixture) awaitReports(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "the reports are made", func() bool { return slices.Equal(f.reports.reasons(), want) })
}

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
	f.awaitBacklog(t, 7, outbox.Backlog{Dead: 1, Unhealthy: 1})
	second := f.event(t, acme.MerchantID)
	f.awaitBacklog(t, 7, outbox.Backlog{Dead: 2, Unhealthy: 1})
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
	f.awaitReports(t, "EndpointGone", "Resumed")
	third := f.event(t, acme.MerchantID)
	if seen := shop.await(t, 2); seen[1].ID != third {
		t.Errorf("saw %s, want %s", seen[1].ID, third)
	}
	f.awaitBacklog(t, 7, outbox.Backlog{Dead: 2})
	if sent, err := f.outbox.Resend(t.Context(), first, second); err != nil || sent.Sent != 2 {
		t.Fatalf("sent %+v again: %v", sent, err)
	}
	shop.await(t, 4)
	f.awaitBacklog(t, 7, outbox.Backlog{})
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
	f.awaitBacklog(t, 7, outbox.Backlog{Dead: 1, Unhealthy: 1})
	f.awaitReports(t, "EndpointFailing")
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
	f.awaitReports(t, "EndpointGone", "Resumed") // and none of it again, by the other one or by this one
}

func TestNothingIsReportedOfAMerchantThatIsGone(t *testing.T) {
	f := newFixture(t)
	acme := f.endpointAt("http://127.0.0.1:1", 7)
	f.disable(t, acme)
	f.reports.setFail(errMerchantGone)
	start(t, f.dispatcher(t))
	eventually(t, "that is done with", func() bool {
		states, err := f.outbox.UnhealthyEndpoints(t.Context(), 7)
		return err == nil && len(states) == 1 && states[0].Reported
	})
}

func TestHealthOfAnEndpoint(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for want, state := range map[string]outbox.EndpointState{
		"EndpointGone":    {DisabledAt: at, Cause: outbox.EndpointGone},
		"EndpointFailing": {DisabledAt: at, Cause: outbox.EndpointFailing, FailingSince: at.Add(-120 * time.Hour)},
		"Resumed":         {ResumedAt: at},
	} {
		got := healthOf(endpoints.Endpoint{URL: "https://shop.example"}, state)
		if got.reason != want || got.healthy != (want == "Resumed") || !got.since.Equal(at) || got.message == "" {
			t.Errorf("%s: %+v", want, got)
		}
	}
	if got := healthOf(endpoints.Endpoint{}, outbox.EndpointState{ResumedAt: at}); got != (health{}) {
		t.Errorf("without a webhook: %+v", got)
	}
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
	f.awaitBacklog(t, 7, outbox.Backlog{Dead: 1})
}

func newReporter(t *testing.T) *kubeReporter {
	t.Helper()
	r, err := newKubeReporter(sharedConfig, "test-1", "credentials")
	must(t, err)
	return r
}

var (
	sick    = health{false, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), reasonFailing, "It fails."}
	healthy = health{true, time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), reasonResumed, "It is tried again."}
)

func TestAReportIsAConditionAndAnEvent(t *testing.T) {
	c := newCluster(t)
	acme := c.merchant(t, "acme", "https://shop.example/hooks")
	acme.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Published", LastTransitionTime: metav1.Now(),
	}}
	must(t, c.Status().Update(t.Context(), acme)) // as the operator has left it

	for _, r := range []*kubeReporter{newReporter(t), newReporter(t)} { // one crashed before it could store that it had reported
		must(t, r.Report(t.Context(), endpointOf(acme), sick))
	}
	got := c.conditions(t, acme)[v1alpha1.WebhookHealthyCondition]
	if got.Status != metav1.ConditionFalse || got.Reason != reasonFailing || got.Message != sick.message || !got.LastTransitionTime.Equal(new(metav1.NewTime(sick.since))) {
		t.Errorf("the condition is %+v", got)
	}
	events := c.events(t)
	if len(events) != 1 {
		t.Fatalf("%d events, want 1", len(events))
	}
	if e := events[0]; e.Type != corev1.EventTypeWarning || e.Reason != reasonFailing || e.Note != sick.message ||
		e.Regarding.Kind != "Merchant" || e.Regarding.Name != "acme" || e.Regarding.UID != acme.UID {
		t.Errorf("the event is %+v", e)
	}

	must(t, newReporter(t).Report(t.Context(), endpointOf(acme), healthy))
	got = c.conditions(t, acme)[v1alpha1.WebhookHealthyCondition]
	if got.Status != metav1.ConditionTrue || got.Reason != reasonResumed {
		t.Errorf("resumed, the condition is %+v", got)
	}
	if n := len(c.events(t)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}

	must(t, newReporter(t).Report(t.Context(), endpointOf(acme), health{}))
	conditions := c.conditions(t, acme)
	if _, there := conditions[v1alpha1.WebhookHealthyCondition]; there || len(conditions) != 1 {
		t.Errorf("without a webhook, the conditions are %+v", conditions)
	}
	if n := len(c.events(t)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}

func TestARecreatedMerchantGetsNoReportOfTheOldOne(t *testing.T) {
	c := newCluster(t)
	old := c.merchant(t, "acme", "https://shop.example/hooks")
	must(t, c.Delete(t.Context(), old))
	if err := newReporter(t).Report(t.Context(), endpointOf(old), sick); !errors.Is(err, errMerchantGone) {
		t.Errorf("of a Merchant that is gone: %v, want errMerchantGone", err)
	}
	again := c.merchant(t, "acme", "https://shop.example/hooks")
	if err := newReporter(t).Report(t.Context(), endpointOf(old), sick); !errors.Is(err, errMerchantGone) {
		t.Errorf("of one that was created again: %v, want errMerchantGone", err)
	}
	if conditions := c.conditions(t, again); len(conditions) != 0 {
		t.Errorf("it got a report of the old one: %+v", conditions)
	}
	if n := len(c.events(t)); n != 0 {
		t.Errorf("%d events, want none", n)
	}
	var found v1alpha1.MerchantList
	must(t, c.List(t.Context(), &found, client.InNamespace(c.namespace)))
	if len(found.Items) != 1 {
		t.Errorf("%d Merchants, want 1", len(found.Items))
	}
}
