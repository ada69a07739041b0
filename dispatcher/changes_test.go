package dispatcher

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// Restarts and other dispatchers see the same published trigger again, until the operator has seen that it was handled.
func TestATestOfAWebhookIsSentOnce(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.endpointAt(shop.URL, 7)
	acme.TestTrigger = "monday"
	f.index.put(acme)
	f.reports.setFail(errors.New("the Kubernetes API is away"))
	first := f.dispatcher(t)
	stop := start(t, first)
	first.changes.add(acme.MerchantID)
	seen := shop.await(t, 1)
	if seen[0].Type != "webhook.test" || !seen[0].Verified || seen[0].Body == "" {
		t.Errorf("got %+v", seen[0])
	}
	f.reports.setFail(nil)
	eventually(t, "it is in the status", func() bool { return slices.Contains(f.reports.triggers(), "monday") })
	_ = stop()

	second, third := f.dispatcher(t), f.dispatcher(t)
	start(t, second)
	start(t, third)
	second.changes.add(acme.MerchantID)
	third.changes.add(acme.MerchantID)
	eventually(t, "the others have reported it too", func() bool { return len(f.reports.triggers()) >= 3 })
	acme.TestTrigger = "tuesday"
	f.index.put(acme)
	second.changes.add(acme.MerchantID)
	third.changes.add(acme.MerchantID)
	shop.await(t, 2)
	f.awaitBacklog(t, 7, outbox.Backlog{})
	if ids := shop.ids(); len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("got %v, want one event for each trigger", ids)
	}
}

// A changed or removed webhook shows at once, and not when its turn to be refreshed comes.
func TestAChangedEndpointIsReportedAtOnce(t *testing.T) {
	f := newFixture(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := f.endpointAt(shop.URL, 7)
	d := f.dispatcher(t)
	start(t, d)
	f.event(t, acme.MerchantID)
	f.awaitReports(t, "Healthy")
	eventually(t, "it is watched no more", func() bool {
		found, err := f.outbox.WatchedEndpoints(t.Context(), 7)
		return err == nil && len(found.States) == 0
	})
	acme = f.moved(acme, "another")
	d.changes.add(acme.MerchantID)
	f.awaitReports(t, "Healthy", "EndpointChanged")
	acme.URL, acme.Target, acme.Secrets = "", "", nil
	f.index.put(acme)
	d.changes.add(acme.MerchantID)
	f.awaitReports(t, "Healthy", "EndpointChanged", "")
}

func TestATestNeedsNoSubscriptionAndReachesTheMerchant(t *testing.T) {
	f, c := newFixture(t), newCluster(t)
	shop := newReceiver(t, always(http.StatusOK))
	acme := c.merchant(t, "acme", shop.URL)
	acme.Spec.Webhook.Events = []v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed}
	acme.Spec.Webhook.TestTrigger = "monday"
	must(t, c.Update(t.Context(), acme))
	c.publish(t, acme)
	f.launch(t, c).proxy.Mend()
	if seen := shop.await(t, 1); seen[0].Type != "webhook.test" || seen[0].ID != outbox.NewWebhookTest(published.ID(acme.UID), "", "monday", time.Time{}).ID {
		t.Errorf("got %+v", seen[0])
	}
	eventually(t, "the Merchant says so", func() bool {
		status := c.webhookStatus(t, acme)
		return status != nil && status.ObservedTestTrigger == "monday" && status.LastDelivery != nil &&
			c.conditions(t, acme)[v1alpha1.WebhookHealthyCondition].Reason == "Healthy"
	})
	acme.Status.Webhook = c.webhookStatus(t, acme)
	if record := published.NewMerchantRecord(acme); record.Webhook.TestTrigger != "" {
		t.Error("the operator publishes the trigger again")
	}
	acme.Spec.Webhook.TestTrigger = "tuesday"
	if record := published.NewMerchantRecord(acme); record.Webhook.TestTrigger != "tuesday" {
		t.Error("the operator does not publish the next trigger")
	}
}
