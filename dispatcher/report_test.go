package dispatcher

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func newReporter(t *testing.T) *kubeReporter {
	t.Helper()
	r, err := newKubeReporter(sharedConfig, "test-1")
	must(t, err)
	return r
}

var (
	sick    = health{false, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), reasonFailing, "It fails."}
	healthy = health{true, time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), reasonResumed, "It is tried again."}
)

func TestAConditionAndAnEventTellHowAnEndpointFares(t *testing.T) {
	c := newCluster(t)
	acme := c.merchant(t, "acme", "https://shop.example/hooks")
	acme.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Published", LastTransitionTime: metav1.Now(),
	}}
	must(t, c.Status().Update(t.Context(), acme)) // as the operator has left it

	for _, r := range []*kubeReporter{newReporter(t), newReporter(t)} { // one crashed before it could say that it had told
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

func TestAMerchantThatWasCreatedAgainIsNotToldOfTheOldOne(t *testing.T) {
	c := newCluster(t)
	old := c.merchant(t, "acme", "https://shop.example/hooks")
	must(t, c.Delete(t.Context(), old))
	if err := newReporter(t).Report(t.Context(), endpointOf(old), sick); !errors.Is(err, errNoMerchant) {
		t.Errorf("of a Merchant that is gone: %v, want errNoMerchant", err)
	}
	again := c.merchant(t, "acme", "https://shop.example/hooks")
	if err := newReporter(t).Report(t.Context(), endpointOf(old), sick); !errors.Is(err, errNoMerchant) {
		t.Errorf("of one that was created again: %v, want errNoMerchant", err)
	}
	if conditions := c.conditions(t, again); len(conditions) != 0 {
		t.Errorf("it was told of the old one: %+v", conditions)
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
