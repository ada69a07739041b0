package dispatcher

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

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
