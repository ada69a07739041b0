package status

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
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
)

func newKubeWriter(t *testing.T) *KubeWriter {
	t.Helper()
	r, err := NewKubeWriter(dispatchertest.Config, "test-1", "credentials")
	dispatchertest.Must(t, err)
	return r
}

var (
	at   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	sick = Report{
		Health{metav1.ConditionFalse, at, reasonRejected, "It rejects."},
		outbox.EndpointState{LastDelivery: at.Add(-time.Hour), LastFailure: outbox.AttemptFailure{Time: at, Reason: reasonRejected, Answer: "401"}, Pending: 3},
		corev1.EventTypeWarning,
	}
	well = Report{
		Health{metav1.ConditionTrue, at.Add(time.Hour), reasonHealthy, "It accepts."},
		outbox.EndpointState{LastDelivery: at.Add(time.Hour), Dead: 2}, corev1.EventTypeNormal,
	}
)

// A report is a status and an event.
func TestWriteReport_StatusAndEvent(t *testing.T) {
	c := dispatchertest.NewCluster(t)
	acme := c.Merchant(t, "acme", "https://shop.example/hooks")
	acme.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Published", LastTransitionTime: metav1.Now(),
	}}
	dispatchertest.Must(t, c.Status().Update(t.Context(), acme)) // as the operator has left it

	for _, r := range []*KubeWriter{newKubeWriter(t), newKubeWriter(t)} { // one crashed before it could store that it had reported
		dispatchertest.Must(t, r.Report(t.Context(), dispatchertest.Endpoint(acme), sick))
	}
	got := c.Conditions(t, acme)[v1alpha1.WebhookHealthyCondition]
	if got.Status != metav1.ConditionFalse || got.Reason != reasonRejected || got.Message != sick.Message || !got.LastTransitionTime.Equal(new(metav1.NewTime(sick.Since))) {
		t.Errorf("the condition is %+v", got)
	}
	events := c.Events(t)
	if len(events) != 1 {
		t.Fatalf("%d events, want 1", len(events))
	}
	if e := events[0]; e.Type != corev1.EventTypeWarning || e.Reason != reasonRejected || e.Note != sick.Message ||
		e.Regarding.Kind != "Merchant" || e.Regarding.Name != "acme" || e.Regarding.UID != acme.UID {
		t.Errorf("the event is %+v", e)
	}
	want := &v1alpha1.WebhookStatus{
		LastDelivery: &v1alpha1.WebhookDelivery{Time: metav1.NewTime(at.Add(-time.Hour))},
		LastFailure:  &v1alpha1.WebhookFailure{Time: metav1.NewTime(at), Reason: reasonRejected, StatusCode: 401},
		Pending:      3,
	}
	if diff := cmp.Diff(want, c.WebhookStatus(t, acme)); diff != "" {
		t.Errorf("status.webhook (-want +got):\n%s", diff)
	}

	tested := dispatchertest.Endpoint(acme)
	tested.TestTrigger = "monday"
	dispatchertest.Must(t, newKubeWriter(t).ReportTest(t.Context(), tested))
	dispatchertest.Must(t, newKubeWriter(t).Report(t.Context(), dispatchertest.Endpoint(acme), well))
	got = c.Conditions(t, acme)[v1alpha1.WebhookHealthyCondition]
	if got.Status != metav1.ConditionTrue || got.Reason != reasonHealthy {
		t.Errorf("recovered, the condition is %+v", got)
	}
	want = &v1alpha1.WebhookStatus{
		LastDelivery: &v1alpha1.WebhookDelivery{Time: metav1.NewTime(at.Add(time.Hour))}, Dead: 2, ObservedTestTrigger: "monday",
	}
	if diff := cmp.Diff(want, c.WebhookStatus(t, acme)); diff != "" {
		t.Errorf("recovered, status.webhook (-want +got):\n%s", diff)
	}
	if n := len(c.Events(t)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}

	removed := dispatchertest.Endpoint(acme)
	removed.URL = ""
	dispatchertest.Must(t, newKubeWriter(t).Report(t.Context(), removed, Report{}))
	conditions := c.Conditions(t, acme)
	if _, there := conditions[v1alpha1.WebhookHealthyCondition]; there || len(conditions) != 1 {
		t.Errorf("without a webhook, the conditions are %+v", conditions)
	}
	if status := c.WebhookStatus(t, acme); status != nil {
		t.Errorf("without a webhook, status.webhook is %+v", status)
	}
	if n := len(c.Events(t)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}

// A Merchant that was created again gets no report of the old one.
func TestWriteReport_RecreatedMerchant(t *testing.T) {
	c := dispatchertest.NewCluster(t)
	old := c.Merchant(t, "acme", "https://shop.example/hooks")
	dispatchertest.Must(t, c.Delete(t.Context(), old))
	if err := newKubeWriter(t).Report(t.Context(), dispatchertest.Endpoint(old), sick); !errors.Is(err, ErrMerchantGone) {
		t.Errorf("of a Merchant that is gone: %v, want ErrMerchantGone", err)
	}
	again := c.Merchant(t, "acme", "https://shop.example/hooks")
	if err := newKubeWriter(t).Report(t.Context(), dispatchertest.Endpoint(old), sick); !errors.Is(err, ErrMerchantGone) {
		t.Errorf("of one that was created again: %v, want ErrMerchantGone", err)
	}
	if conditions := c.Conditions(t, again); len(conditions) != 0 {
		t.Errorf("it got a report of the old one: %+v", conditions)
	}
	if n := len(c.Events(t)); n != 0 {
		t.Errorf("%d events, want none", n)
	}
	var found v1alpha1.MerchantList
	dispatchertest.Must(t, c.List(t.Context(), &found, client.InNamespace(c.Namespace)))
	if len(found.Items) != 1 {
		t.Errorf("%d Merchants, want 1", len(found.Items))
	}
}
