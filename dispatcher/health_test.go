package dispatcher

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
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
		reason, url string
		status      int32
	}{
		{"AddressRefused", "http://10.255.255.1/hooks", 0},
		{"URLRefused", "ftp://127.0.0.1/hooks", 0},
		{"TLSFailed", tls.URL, 0},
		{"Redirected", status(http.StatusFound), 302},
		{"Rejected", status(http.StatusUnauthorized), 401},
		{"EndpointGone", status(http.StatusGone), 410},
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

// Two dispatchers that report at once leave nothing in Redis of what they reported.
func TestARecoveryIsAnEventWhoeverReportedBefore(t *testing.T) {
	f := newFixture(t)
	var answer atomic.Int32
	answer.Store(http.StatusNotFound)
	shop := newReceiver(t, func(int, *http.Request) int { return int(answer.Load()) })
	acme := f.endpointAt(shop.URL, 7)
	start(t, f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0, time.Hour} }))
	f.event(t, acme.MerchantID)
	f.made(t, "Rejected")
	eventually(t, "Redis knows", func() bool { return f.state(t, acme).Reported.Reason == "Rejected" })
	must(t, f.outbox.EndpointReported(t.Context(), outbox.EndpointState{MerchantID: acme.MerchantID}, "Retrying", false))
	answer.Store(http.StatusOK)
	f.event(t, acme.MerchantID)
	if made := f.made(t, "Healthy"); made.eventType != corev1.EventTypeNormal {
		t.Errorf("the recovery: %+v", made)
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
