package merchants

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// webhookToPublish returns the webhook of the Merchant. One that was removed stays published, so that its events wait for another one;
// nil: there never was one. It relies on the credentials namespace alone: a status could keep or drop the events of a merchant.
func webhookToPublish(f facts) *published.Webhook {
	before := f.publishedWebhook
	switch {
	case f.merchant.Spec.Webhook != nil:
		return published.NewMerchantRecord(f.merchant).Webhook
	case before.Removed() && (before.Dropped || graceOver(f)):
		return &published.Webhook{RemovedAt: before.RemovedAt, Dropped: true}
	case before.Removed() && !before.RemovedAt.After(f.now.Add(clockTolerance)):
		return before
	case before != nil:
		return &published.Webhook{Webhook: v1alpha1.Webhook{Events: before.Events}, RemovedAt: removedNow(f)}
	case f.signing != nil: // the published merchant was lost
		return &published.Webhook{RemovedAt: removedNow(f)}
	}
	return nil
}

// clockTolerance is larger than the usual difference between the clocks of two operators. A later removedAt was written by a clock that
// was ahead; the wait begins anew.
const clockTolerance = time.Minute

func removedNow(f facts) time.Time { return f.now.Truncate(time.Second) }

func graceOver(f facts) bool {
	return !f.clockWrong && !f.now.Before(f.publishedWebhook.RemovedAt.Add(published.WebhookGrace))
}

// graceEnd is when the events of a removed webhook wait no longer; zero: they do not wait.
func graceEnd(f facts) time.Time {
	if f.merchant.Spec.Webhook != nil || !f.publishedWebhook.Awaited() {
		return time.Time{}
	}
	return f.publishedWebhook.RemovedAt.Add(published.WebhookGrace)
}
