package dispatcher

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
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
	if sent, err := f.outbox.Resend(t.Context(), first, second); err != nil || sent.Sent != 2 {
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

// made returns the last report, which must be of that reason.
func (f fixture) made(t *testing.T, reason string) report {
	t.Helper()
	var last report
	eventually(t, "the health is "+reason, func() bool {
		all := f.reports.all()
		if len(all) > 0 {
			last = all[len(all)-1]
		}
		return last.reason == reason
	})
	return last
}

func TestAFailureThatRetryingCannotMendIsReportedAtOnce(t *testing.T) {
	tls := httptest.NewTLSServer(http.NotFoundHandler()) // with a certificate that nobody trusts
	t.Cleanup(tls.Close)
	status := func(status int) string { return newReceiver(t, always(status)).URL }
	for _, test := range []struct {
		reason, url, result string
		status              int
	}{
		{"AddressRefused", "http://10.255.255.1/hooks", "refused_address", 0},
		{"URLRefused", "ftp://127.0.0.1/hooks", "bad_url", 0},
		{"TLSFailed", tls.URL, "tls", 0},
		{"Redirected", status(http.StatusFound), "redirect", 302},
		{"Rejected", status(http.StatusUnauthorized), "status_4xx", 401},
		{"EndpointGone", status(http.StatusGone), "gone", 410},
	} {
		t.Run(test.reason, func(t *testing.T) {
			f := newFixture(t)
			acme := f.endpointAt(test.url, 7)
			f.event(t, acme.MerchantID)
			d := f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0, time.Hour} })
			start(t, d)
			made := f.made(t, test.reason)
			if n := len(f.reports.all()); n != 1 {
				t.Errorf("%d reports, want 1", n)
			}
			if made.status != metav1.ConditionFalse || made.eventType != corev1.EventTypeWarning || made.since.IsZero() {
				t.Errorf("reported %+v", made)
			}
			failure := made.state.LastFailure
			if failure.Reason != test.reason || failure.Status() != test.status || time.Since(failure.Time) > patience {
				t.Errorf("the last failure is %+v", failure)
			}
			if strings.Contains(made.message, "127.0.0.1") || !strings.Contains(made.message, "spec.webhook") && !strings.Contains(made.message, "certificate") {
				t.Errorf("the message is %q", made.message)
			}
			if log := f.log.String(); !strings.Contains(log, "webhook is unhealthy") || !strings.Contains(log, test.reason) || !strings.Contains(log, acme.Merchant.String()) {
				t.Errorf("the log is %s", log)
			}
			eventually(t, "it is counted", func() bool {
				return testutil.ToFloat64(d.metrics.unhealthyEndpoints.WithLabelValues(test.reason)) == 1
			})
		})
	}
}

func TestOtherFailuresAreReportedAfterFiveMinutes(t *testing.T) {
	refusing := httptest.NewServer(http.NotFoundHandler())
	refusing.Close()
	status := func(status int) string { return newReceiver(t, always(status)).URL }
	for reason, url := range map[string]string{
		"ServerError":      status(http.StatusInternalServerError),
		"RetryLater":       status(http.StatusTooManyRequests),
		"ConnectionFailed": refusing.URL,
	} {
		t.Run(reason, func(t *testing.T) {
			f := newFixture(t)
			acme := f.endpointAt(url, 7)
			f.event(t, acme.MerchantID)
			start(t, f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0, time.Hour} }))
			first := f.made(t, "Retrying")
			if first.status != metav1.ConditionUnknown || first.eventType != "" || first.state.LastFailure.Reason != reason || first.state.Pending != 1 {
				t.Errorf("at first: %+v", first)
			}
			f.setBack(t, acme, "since", outbox.UnhealthyAfter)
			made := f.made(t, reason)
			if made.status != metav1.ConditionFalse || made.eventType != corev1.EventTypeWarning {
				t.Errorf("after five minutes: %+v", made)
			}
		})
	}
}

func TestAnEndpointRecoversAtTheFirstSuccess(t *testing.T) {
	f := newFixture(t)
	var answer atomic.Int32
	answer.Store(http.StatusOK)
	shop := newReceiver(t, func(int, *http.Request) int { return int(answer.Load()) })
	acme := f.endpointAt(shop.URL, 7)
	start(t, f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0, time.Hour} }))
	f.event(t, acme.MerchantID)
	if first := f.made(t, "Healthy"); first.status != metav1.ConditionTrue || first.eventType != "" || first.state.LastDelivery.IsZero() {
		t.Errorf("the first delivery: %+v", first)
	}
	answer.Store(http.StatusInternalServerError)
	f.event(t, acme.MerchantID)
	shop.await(t, 2)
	answer.Store(http.StatusNotFound)
	f.event(t, acme.MerchantID)
	f.made(t, "Rejected")
	f.awaitReports(t, "Healthy", "Rejected") // and nothing of a failure that could have mended itself
	answer.Store(http.StatusOK)
	f.event(t, acme.MerchantID)
	made := f.made(t, "Healthy")
	if made.status != metav1.ConditionTrue || made.eventType != corev1.EventTypeNormal || !made.state.FailingSince.IsZero() || made.state.LastFailure.Status() != 404 {
		t.Errorf("the recovery: %+v", made)
	}
	if !strings.Contains(f.log.String(), "webhook is healthy") {
		t.Errorf("the log is %s", f.log.String())
	}
}

// accepting delivers whatever it is given.
type accepting struct{ n atomic.Int32 }

func (a *accepting) Send(context.Context, delivery.Request) delivery.Result {
	a.n.Add(1)
	return delivery.Result{Outcome: delivery.Delivered, Status: http.StatusOK, Reason: delivery.ReasonDelivered}
}

// etcd must not pay for traffic: ten thousand deliveries of twenty merchants are twenty reports, and twenty more after ten minutes.
func TestReportsDoNotGrowWithTraffic(t *testing.T) {
	f := newFixture(t)
	const merchants, events = 20, 500
	all := make([]endpoints.Endpoint, merchants)
	for i := range all {
		all[i] = f.endpointAt("https://shop.example/", session.Bucket(i%4))
	}
	d := f.dispatcher(t)
	sender := &accepting{}
	d.sender = sender
	start(t, d)
	var creating sync.WaitGroup
	for _, endpoint := range all {
		creating.Go(func() {
			for range events {
				f.event(t, endpoint.MerchantID)
			}
		})
	}
	creating.Wait()
	eventually(t, "all is delivered", func() bool { return sender.n.Load() == merchants*events })
	eventually(t, "nothing is to be reported", func() bool {
		pending, err := f.outbox.PendingWork(t.Context())
		return err == nil && !slices.ContainsFunc(pending, func(work outbox.PendingWork) bool { return work.Endpoints })
	})
	if n := len(f.reports.all()); n != merchants {
		t.Errorf("%d reports of %d deliveries, want %d", n, merchants*events, merchants)
	}
	again := f.dispatcher(t) // not running, so that the test says when
	again.prepare()
	refresh := func() {
		for range session.Buckets {
			if _, err := again.refreshHealth(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	refresh()
	if n := len(f.reports.all()); n != merchants {
		t.Errorf("%d reports before ten minutes are over, want %d", n, merchants)
	}
	for _, endpoint := range all {
		f.setBack(t, endpoint, "reported_at", refreshAge)
	}
	refresh()
	refresh()
	if n := len(f.reports.all()); n != 2*merchants {
		t.Errorf("%d reports after ten minutes, want %d", n, 2*merchants)
	}
	for _, endpoint := range all {
		f.setBack(t, endpoint, "delivered", 2*refreshAge)
		f.setBack(t, endpoint, "reported_at", refreshAge)
	}
	refresh()
	if n := len(f.reports.all()); n != 2*merchants {
		t.Errorf("%d reports without a delivery, want %d", n, 2*merchants)
	}
}

// An endpoint that alternates between 200 and 404 uses up its own budget only.
func TestAnAlternatingEndpointHasABudget(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, func(before int, _ *http.Request) int { return []int{http.StatusOK, http.StatusNotFound}[before%2] })
	acme := f.endpointAt(shop.URL, 7)
	d := f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0} })
	d.prepare()
	for range 3 * outbox.ReportBurst {
		f.event(t, acme.MerchantID)
		attempts := len(shop.ids())
		eventually(t, "the attempt is made", func() bool {
			if _, err := d.lease(t.Context(), 7); err != nil {
				t.Fatal(err)
			}
			return len(shop.ids()) > attempts
		})
		eventually(t, "its result is recorded", func() bool { return f.state(t, acme).Pending == 0 })
		if _, err := d.reportHealth(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.reports.all()); n != outbox.ReportBurst {
		t.Errorf("%d reports, want %d", n, outbox.ReportBurst)
	}
	d.queues.close(t.Context())
}

// Whatever fails at once, one round of one dispatcher makes a bounded number of reports, and the next ones the rest.
func TestReportsOfAllMerchantsHaveABudget(t *testing.T) {
	f := newFixture(t)
	const merchants = 2*changesPerRound + 5
	d := f.dispatcher(t)
	d.prepare()
	for range merchants {
		f.disable(t, f.endpointAt("https://shop.example/", 7))
	}
	for round, want := range []int{changesPerRound, 2 * changesPerRound, merchants, merchants} {
		if _, err := d.reportHealth(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(f.reports.all()); n != want {
			t.Errorf("%d reports after round %d, want %d", n, round+1, want)
		}
	}
}

// Counts that changed without a delivery are refreshed too.
func TestCountsAreRefreshed(t *testing.T) {
	f := newFixture(t)
	acme := f.endpointAt("http://127.0.0.1:1", 7)
	id := f.event(t, acme.MerchantID)
	leased, err := f.outbox.Lease(t.Context(), 7, outbox.LeaseRequest{For: time.Hour, Limit: 1})
	must(t, err)
	_, err = f.outbox.Failed(t.Context(), leased.Leases[0], outbox.Failure{
		Details: outbox.Details{Reason: "timeout"}, Retry: -1, Target: acme.Target, FailingLimit: time.Hour, Health: reasonTimeout,
	})
	must(t, err)
	d := f.dispatcher(t)
	d.prepare()
	if _, err := d.reportHealth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first := f.made(t, "Retrying"); first.state.Pending != 0 || first.state.Dead != 1 {
		t.Errorf("at first: %+v", first.state)
	}
	if resent, err := f.outbox.Resend(t.Context(), id); err != nil || resent.Sent != 1 {
		t.Fatalf("sent %+v again: %v", resent, err)
	}
	f.setBack(t, acme, "reported_at", refreshAge)
	f.setBack(t, acme, "failed", refreshAge)
	d.nextRefresh = 7
	if _, err := d.refreshHealth(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := f.reports.all()
	if last := all[len(all)-1]; len(all) != 2 || last.state.Pending != 1 || last.state.Dead != 0 || last.eventType != "" {
		t.Errorf("%d reports, the last is %+v", len(all), last.state)
	}
}

func TestHealthOfAnEndpoint(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	timeout := outbox.AttemptFailure{Time: ago(time.Second), Reason: reasonTimeout}
	rejected := outbox.AttemptFailure{Time: ago(time.Second), Reason: reasonRejected, Answer: "401"}
	const limit = outbox.UnhealthyAfter
	for desc, test := range map[string]struct {
		state  outbox.EndpointState
		status metav1.ConditionStatus
		reason string
		since  time.Time
	}{
		"nothing yet":              {outbox.EndpointState{}, "", "", time.Time{}},
		"delivered":                {outbox.EndpointState{HealthySince: ago(time.Hour)}, metav1.ConditionTrue, reasonHealthy, ago(time.Hour)},
		"failing for a while":      {outbox.EndpointState{HealthySince: ago(time.Hour), FailingSince: ago(limit - 1), LastFailure: timeout}, metav1.ConditionTrue, reasonHealthy, ago(time.Hour)},
		"failing for five minutes": {outbox.EndpointState{HealthySince: ago(time.Hour), FailingSince: ago(limit), LastFailure: timeout}, metav1.ConditionFalse, reasonTimeout, now},
		"failing from the start":   {outbox.EndpointState{FailingSince: ago(limit - 1), LastFailure: timeout}, metav1.ConditionUnknown, reasonRetrying, ago(limit - 1)},
		"rejected":                 {outbox.EndpointState{FailingSince: ago(2), PermanentSince: ago(1), LastFailure: rejected}, metav1.ConditionFalse, reasonRejected, ago(1)},
		"rejected after the limit": {outbox.EndpointState{FailingSince: ago(2 * limit), PermanentSince: ago(1), LastFailure: rejected}, metav1.ConditionFalse, reasonRejected, ago(limit)},
		"changed":                  {outbox.EndpointState{ChangedAt: ago(1)}, metav1.ConditionUnknown, reasonEndpointChanged, ago(1)},
		"gone":                     {outbox.EndpointState{DisabledAt: ago(1), Cause: outbox.EndpointGone, FailingSince: ago(2)}, metav1.ConditionFalse, reasonEndpointGone, ago(1)},
		"disabled":                 {outbox.EndpointState{DisabledAt: ago(1), Cause: outbox.EndpointFailing, FailingSince: ago(120 * time.Hour)}, metav1.ConditionFalse, reasonEndpointDisabled, ago(1)},
	} {
		got := healthOf(endpoints.Endpoint{URL: "https://shop.example"}, test.state, now)
		if got.status != test.status || got.reason != test.reason || !got.since.Equal(test.since) || (got.message == "") != (test.reason == "") {
			t.Errorf("%s: %+v", desc, got)
		}
		if got := healthOf(endpoints.Endpoint{}, test.state, now); got != (health{}) {
			t.Errorf("%s, without a webhook: %+v", desc, got)
		}
	}
}

// Every kind of failure has a reason of its own that a person can read.
func TestEveryFailureHasAReasonWithAMessage(t *testing.T) {
	for _, reason := range failureReasons() {
		for _, status := range []int{0, 400, 408, 425, 429, 500} {
			got, _ := causeOf(delivery.Result{Reason: reason, Status: status})
			if messages[got] == "" || got == reasonDeliveryFailed && reason != delivery.ReasonUnsigned {
				t.Errorf("%s %d: %s %q", reason, status, got, messages[got])
			}
		}
	}
	for reason, message := range messages {
		const maxEventNote = 1024
		if len(message)+len(disabledHint)+len(retriedHint)+len(time.RFC3339) > maxEventNote {
			t.Errorf("the message of %s is too long for an event", reason)
		}
	}
}

func newReporter(t *testing.T) *kubeReporter {
	t.Helper()
	r, err := newKubeReporter(sharedConfig, "test-1", "credentials")
	must(t, err)
	return r
}

var (
	at   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	sick = report{
		health{metav1.ConditionFalse, at, reasonRejected, "It rejects."},
		outbox.EndpointState{LastDelivery: at.Add(-time.Hour), LastFailure: outbox.AttemptFailure{Time: at, Reason: reasonRejected, Answer: "401"}, Pending: 3},
		corev1.EventTypeWarning,
	}
	well = report{
		health{metav1.ConditionTrue, at.Add(time.Hour), reasonHealthy, "It accepts."},
		outbox.EndpointState{LastDelivery: at.Add(time.Hour), Dead: 2}, corev1.EventTypeNormal,
	}
)

func TestAReportIsAStatusAndAnEvent(t *testing.T) {
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
	if got.Status != metav1.ConditionFalse || got.Reason != reasonRejected || got.Message != sick.message || !got.LastTransitionTime.Equal(new(metav1.NewTime(sick.since))) {
		t.Errorf("the condition is %+v", got)
	}
	events := c.events(t)
	if len(events) != 1 {
		t.Fatalf("%d events, want 1", len(events))
	}
	if e := events[0]; e.Type != corev1.EventTypeWarning || e.Reason != reasonRejected || e.Note != sick.message ||
		e.Regarding.Kind != "Merchant" || e.Regarding.Name != "acme" || e.Regarding.UID != acme.UID {
		t.Errorf("the event is %+v", e)
	}
	want := &v1alpha1.WebhookStatus{
		LastDelivery: &v1alpha1.WebhookDelivery{Time: metav1.NewTime(at.Add(-time.Hour))},
		LastFailure:  &v1alpha1.WebhookFailure{Time: metav1.NewTime(at), Reason: reasonRejected, StatusCode: 401},
		Pending:      3,
	}
	if diff := cmp.Diff(want, c.webhookStatus(t, acme)); diff != "" {
		t.Errorf("status.webhook (-want +got):\n%s", diff)
	}

	tested := endpointOf(acme)
	tested.TestTrigger = "monday"
	must(t, newReporter(t).ReportTest(t.Context(), tested))
	must(t, newReporter(t).Report(t.Context(), endpointOf(acme), well))
	got = c.conditions(t, acme)[v1alpha1.WebhookHealthyCondition]
	if got.Status != metav1.ConditionTrue || got.Reason != reasonHealthy {
		t.Errorf("recovered, the condition is %+v", got)
	}
	want = &v1alpha1.WebhookStatus{
		LastDelivery: &v1alpha1.WebhookDelivery{Time: metav1.NewTime(at.Add(time.Hour))}, Dead: 2, ObservedTestTrigger: "monday",
	}
	if diff := cmp.Diff(want, c.webhookStatus(t, acme)); diff != "" {
		t.Errorf("recovered, status.webhook (-want +got):\n%s", diff)
	}
	if n := len(c.events(t)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}

	removed := endpointOf(acme)
	removed.URL = ""
	must(t, newReporter(t).Report(t.Context(), removed, report{}))
	conditions := c.conditions(t, acme)
	if _, there := conditions[v1alpha1.WebhookHealthyCondition]; there || len(conditions) != 1 {
		t.Errorf("without a webhook, the conditions are %+v", conditions)
	}
	if status := c.webhookStatus(t, acme); status != nil {
		t.Errorf("without a webhook, status.webhook is %+v", status)
	}
	if n := len(c.events(t)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}

func (c cluster) webhookStatus(t *testing.T, merchant *v1alpha1.Merchant) *v1alpha1.WebhookStatus {
	t.Helper()
	var now v1alpha1.Merchant
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(merchant), &now))
	if webhook := now.Status.Webhook; webhook != nil { // in the zone of the one who compares
		if webhook.LastDelivery != nil {
			webhook.LastDelivery.Time.Time = webhook.LastDelivery.Time.UTC()
		}
		if webhook.LastFailure != nil {
			webhook.LastFailure.Time.Time = webhook.LastFailure.Time.UTC()
		}
	}
	return now.Status.Webhook
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
