package dispatcher

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

// A failure that retrying cannot fix is reported at once.
func TestStatus_PermanentFailure(t *testing.T) {
	tls := httptest.NewTLSServer(http.NotFoundHandler()) // with a certificate that nobody trusts
	t.Cleanup(tls.Close)
	answering := func(status int) string { return dispatchertest.NewReceiver(t, dispatchertest.Always(status)).URL }
	for _, test := range []struct {
		reason, url string
		status      int32
	}{
		{"AddressRefused", "http://10.255.255.1/hooks", 0},
		{"URLRefused", "ftp://127.0.0.1/hooks", 0},
		{"TLSFailed", tls.URL, 0},
		{"Redirected", answering(http.StatusFound), 302},
		{"Rejected", answering(http.StatusUnauthorized), 401},
		{"EndpointGone", answering(http.StatusGone), 410},
	} {
		t.Run(test.reason, func(t *testing.T) {
			f := newFixture(t)
			acme := f.EndpointAt(test.url, 7)
			f.Event(t, acme.MerchantID)
			d := f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0, time.Hour} })
			start(t, d)
			report := f.reports.AwaitLast(t, test.reason)
			if n := len(f.reports.All()); n != 1 {
				t.Errorf("%d reports, want 1", n)
			}
			if report.Status != metav1.ConditionFalse || report.EventType != corev1.EventTypeWarning || report.Since.IsZero() {
				t.Errorf("reported %+v", report)
			}
			failure := report.State.LastFailure
			if failure.Reason != test.reason || failure.Status() != test.status || time.Since(failure.Time) > dispatchertest.Patience {
				t.Errorf("the last failure is %+v", failure)
			}
			if strings.Contains(report.Message, "127.0.0.1") || !strings.Contains(report.Message, "spec.webhook") && !strings.Contains(report.Message, "certificate") {
				t.Errorf("the message is %q", report.Message)
			}
			dispatchertest.Eventually(t, "it is logged", func() bool { // after the report
				log := f.Log.String()
				return strings.Contains(log, "webhook is unhealthy") && strings.Contains(log, test.reason) && strings.Contains(log, acme.Merchant.String())
			})
			dispatchertest.Eventually(t, "it is counted", func() bool {
				return d.metric(t, "webhook_endpoints_unhealthy", test.reason) == 1
			})
		})
	}
}

// Where nothing can be sent is said when it is published: the first event may come in weeks, and be lost.
func TestStatus_RefusedBeforeTheFirstEvent(t *testing.T) {
	for url, reason := range map[string]string{
		"http://10.255.255.1/hooks": "AddressRefused", "https://[::1]/hooks": "AddressRefused", "https://localhost/hooks": "AddressRefused", "ftp://127.0.0.1/hooks": "URLRefused",
	} {
		t.Run(url, func(t *testing.T) {
			f := newFixture(t)
			shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
			acme := f.EndpointAt(url, 7)
			d := f.dispatcher(t)
			start(t, d)
			d.changes.Add(acme.MerchantID)
			d.changes.Add(acme.MerchantID) // as when another dispatcher sees it too
			report := f.reports.AwaitLast(t, reason)
			if report.Status != metav1.ConditionFalse || report.EventType != corev1.EventTypeWarning || report.Since.IsZero() ||
				!strings.Contains(report.Message, "spec.webhook") || strings.Contains(report.Message, "since") {
				t.Errorf("reported %+v", report)
			}
			acme.URL, acme.Target = shop.URL, "another"
			f.Index.Put(acme)
			f.Event(t, acme.MerchantID)
			f.reports.AwaitLast(t, "Healthy")
			if n := slices.Index(f.reports.Reasons(), reason); n != 0 || slices.Contains(f.reports.Reasons()[1:], reason) {
				t.Errorf("reported %v, want %s once", f.reports.Reasons(), reason)
			}
		})
	}
}

func TestStatus_TransientFailure(t *testing.T) {
	answering := func(status int) string { return dispatchertest.NewReceiver(t, dispatchertest.Always(status)).URL }
	for reason, url := range map[string]string{
		"ServerError":      answering(http.StatusInternalServerError),
		"RetryLater":       answering(http.StatusTooManyRequests),
		"ConnectionFailed": "http://127.0.0.1:1", // nobody else's test listens there
	} {
		t.Run(reason, func(t *testing.T) {
			f := newFixture(t)
			acme := f.EndpointAt(url, 7)
			f.Event(t, acme.MerchantID)
			start(t, f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0, time.Hour} }))
			first := f.reports.AwaitLast(t, "Retrying")
			if first.Status != metav1.ConditionUnknown || first.EventType != "" || first.State.LastFailure.Reason != reason || first.State.Pending != 1 {
				t.Errorf("at first: %+v", first)
			}
			f.SetBack(t, acme, "since", outbox.UnhealthyAfter)
			report := f.reports.AwaitLast(t, reason)
			if report.Status != metav1.ConditionFalse || report.EventType != corev1.EventTypeWarning {
				t.Errorf("after five minutes: %+v", report)
			}
		})
	}
}

// An endpoint recovers at the first success.
func TestStatus_FirstSuccess(t *testing.T) {
	f := newFixture(t)
	var answer atomic.Int32
	answer.Store(http.StatusOK)
	shop := dispatchertest.NewReceiver(t, func(int, *http.Request) int { return int(answer.Load()) })
	acme := f.EndpointAt(shop.URL, 7)
	start(t, f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0, time.Hour} }))
	f.Event(t, acme.MerchantID)
	if first := f.reports.AwaitLast(t, "Healthy"); first.Status != metav1.ConditionTrue || first.EventType != "" || first.State.LastDelivery.IsZero() {
		t.Errorf("the first delivery: %+v", first)
	}
	answer.Store(http.StatusInternalServerError)
	f.Event(t, acme.MerchantID)
	shop.Await(t, 2)
	answer.Store(http.StatusNotFound)
	f.Event(t, acme.MerchantID)
	f.reports.AwaitLast(t, "Rejected")
	f.reports.AwaitReasons(t, "Healthy", "Rejected") // and nothing of a failure that could have passed
	answer.Store(http.StatusOK)
	f.Event(t, acme.MerchantID)
	report := f.reports.AwaitLast(t, "Healthy")
	if report.Status != metav1.ConditionTrue || report.EventType != corev1.EventTypeNormal || !report.State.FailingSince.IsZero() || report.State.LastFailure.Status() != 404 {
		t.Errorf("the recovery: %+v", report)
	}
	dispatchertest.Eventually(t, "it is logged", func() bool { return strings.Contains(f.Log.String(), "webhook is healthy") }) // after the report
}

// Two dispatchers that report at once leave nothing in Redis of what they reported.
func TestStatus_RecoveryAfterTwoReports(t *testing.T) {
	f := newFixture(t)
	var answer atomic.Int32
	answer.Store(http.StatusNotFound)
	shop := dispatchertest.NewReceiver(t, func(int, *http.Request) int { return int(answer.Load()) })
	acme := f.EndpointAt(shop.URL, 7)
	start(t, f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0, time.Hour} }))
	f.Event(t, acme.MerchantID)
	f.reports.AwaitLast(t, "Rejected")
	dispatchertest.Eventually(t, "Redis knows", func() bool { return f.State(t, acme).Reported.Reason == "Rejected" })
	dispatchertest.Must(t, f.Outbox.RecordEndpointReport(t.Context(), outbox.EndpointState{MerchantID: acme.MerchantID}, "Retrying", false))
	answer.Store(http.StatusOK)
	f.Event(t, acme.MerchantID)
	if report := f.reports.AwaitLast(t, "Healthy"); report.EventType != corev1.EventTypeNormal {
		t.Errorf("the recovery: %+v", report)
	}
}

// Dead letters that were sent again are not shown for another ten minutes, also of an endpoint that was healthy all the time.
func TestReportHealth_DeadLettersSentAgain(t *testing.T) {
	f := newFixture(t)
	var answer atomic.Int32
	answer.Store(http.StatusInternalServerError)
	shop := dispatchertest.NewReceiver(t, func(int, *http.Request) int { return int(answer.Load()) })
	acme := f.EndpointAt(shop.URL, 7)
	start(t, f.dispatcher(t, func(o *Options) { o.Schedule = Schedule{0} }))
	id := f.Event(t, acme.MerchantID)
	f.awaitCounts(t, "the dead letter is shown", 0, 1)
	answer.Store(http.StatusOK)
	f.Event(t, acme.MerchantID)
	f.reports.AwaitLast(t, "Healthy")
	f.AwaitUnwatched(t)
	if resent, err := f.Outbox.Resend(t.Context(), outbox.ResendRequest{IDs: []string{id}}); err != nil || resent.Sent != 1 {
		t.Fatalf("sent %+v again: %v", resent, err)
	}
	f.awaitCounts(t, "no dead letter is shown", 0, 0)
	f.AwaitUnwatched(t)
}

// Restarts and other dispatchers see the same published trigger again, until the operator has seen that it was handled.
func TestStatus_TestTriggerIsSentOnce(t *testing.T) {
	f := newFixture(t)
	shop, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	acme.TestTrigger = "monday"
	f.Index.Put(acme)
	f.reports.SetFail(errors.New("the Kubernetes API is away"))
	first := f.dispatcher(t)
	stop := start(t, first)
	first.changes.Add(acme.MerchantID)
	seen := shop.Await(t, 1)
	if seen[0].Type != "webhook.test" || !seen[0].Verified || seen[0].Body == "" {
		t.Errorf("got %+v", seen[0])
	}
	f.reports.SetFail(nil)
	dispatchertest.Eventually(t, "it is in the status", func() bool { return slices.Contains(f.reports.Triggers(), "monday") })
	_ = stop()

	second, third := f.dispatcher(t), f.dispatcher(t)
	start(t, second)
	start(t, third)
	second.changes.Add(acme.MerchantID)
	third.changes.Add(acme.MerchantID)
	dispatchertest.Eventually(t, "the others have reported it too", func() bool { return len(f.reports.Triggers()) >= 3 })
	acme.TestTrigger = "tuesday"
	f.Index.Put(acme)
	second.changes.Add(acme.MerchantID)
	third.changes.Add(acme.MerchantID)
	shop.Await(t, 2)
	f.AwaitBacklog(t, 7, outbox.Backlog{})
	if ids := shop.IDs(); len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("got %v, want one event for each trigger", ids)
	}
}

// A changed or removed webhook shows at once, and not when its turn to be refreshed comes.
func TestStatus_ChangedEndpoint(t *testing.T) {
	f := newFixture(t)
	_, acme := f.Shop(t, dispatchertest.Always(http.StatusOK))
	d := f.dispatcher(t)
	start(t, d)
	f.Event(t, acme.MerchantID)
	f.reports.AwaitReasons(t, "Healthy")
	dispatchertest.Eventually(t, "it is watched no more", func() bool {
		found, err := f.Outbox.WatchedEndpoints(t.Context(), 7)
		return err == nil && len(found.States) == 0
	})
	acme = f.Moved(acme, "another")
	d.changes.Add(acme.MerchantID)
	f.reports.AwaitReasons(t, "Healthy", "EndpointChanged")
	acme.URL, acme.Target, acme.Secrets = "", "", nil
	f.Index.Put(acme)
	d.changes.Add(acme.MerchantID)
	f.reports.AwaitReasons(t, "Healthy", "EndpointChanged", "")
}

func TestStatus_TestNeedsNoSubscription(t *testing.T) {
	f, c := newFixture(t), dispatchertest.NewCluster(t)
	shop := dispatchertest.NewReceiver(t, dispatchertest.Always(http.StatusOK))
	acme := c.Merchant(t, "acme", shop.URL)
	acme.Spec.Webhook.Events = []v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed}
	acme.Spec.Webhook.TestTrigger = "monday"
	dispatchertest.Must(t, c.Update(t.Context(), acme))
	c.Publish(t, acme)
	f.launch(t, c).proxy.Restore()
	if seen := shop.Await(t, 1); seen[0].Type != "webhook.test" || seen[0].ID != feed.NewWebhookTest(published.ID(acme.UID), "", "monday", time.Time{}).ID {
		t.Errorf("got %+v", seen[0])
	}
	dispatchertest.Eventually(t, "the status of the Merchant is written", func() bool {
		status := c.WebhookStatus(t, acme)
		return status != nil && status.ObservedTestTrigger == "monday" && status.LastDelivery != nil &&
			c.Conditions(t, acme)[v1alpha1.WebhookHealthyCondition].Reason == "Healthy"
	})
	acme.Status.Webhook = c.WebhookStatus(t, acme)
	if record := published.NewMerchantRecord(acme); record.Webhook.TestTrigger != "" {
		t.Error("the operator publishes the trigger again")
	}
	acme.Spec.Webhook.TestTrigger = "tuesday"
	if record := published.NewMerchantRecord(acme); record.Webhook.TestTrigger != "tuesday" {
		t.Error("the operator does not publish the next trigger")
	}
}

func (f testFixture) awaitCounts(t *testing.T, what string, pending, dead int64) {
	t.Helper()
	dispatchertest.Eventually(t, what, func() bool {
		all := f.reports.All()
		return len(all) > 0 && all[len(all)-1].State.Pending == pending && all[len(all)-1].State.Dead == dead
	})
}
