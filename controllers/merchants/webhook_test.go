package merchants

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// A removed webhook stays published for a day, by the published record alone.
func TestWebhookToPublish(t *testing.T) {
	completed := []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}
	there := &published.Webhook{Webhook: v1alpha1.Webhook{URL: "https://shop.example/hooks", Events: completed, RotationTrigger: "a"}}
	removed := func(ago time.Duration) *published.Webhook {
		return &published.Webhook{Webhook: v1alpha1.Webhook{Events: completed}, RemovedAt: now.Add(-ago)}
	}
	dropped := func(ago time.Duration) *published.Webhook {
		return &published.Webhook{RemovedAt: now.Add(-ago), Dropped: true}
	}
	for name, test := range map[string]struct {
		published *published.Webhook
		signed    bool
		want      *published.Webhook
	}{
		"never had one":                              {},
		"just removed":                               {there, true, removed(0)},
		"just removed, before it had a secret":       {there, false, removed(0)},
		"removed an hour ago":                        {removed(time.Hour), true, removed(time.Hour)},
		"removed by a clock that was a little ahead": {removed(-time.Second), true, removed(-time.Second)},
		"removed by a clock that was a year ahead":   {removed(-365 * 24 * time.Hour), true, removed(0)},
		"removed a day ago":                          {removed(published.WebhookGrace), true, dropped(published.WebhookGrace)},
		"dropped":                                    {dropped(48 * time.Hour), false, dropped(48 * time.Hour)},
		"dropped, and the clock went back":           {dropped(-time.Hour), false, dropped(-time.Hour)},
		"the published merchant was lost":            {nil, true, &published.Webhook{RemovedAt: now}},
	} {
		t.Run(name, func(t *testing.T) {
			f := upToDate(t)
			f.merchant.Spec.Webhook, f.publishedWebhook = nil, test.published
			if !test.signed {
				f.signing, f.record = nil, nil
			}
			if diff := cmp.Diff(test.want, webhookToPublish(f)); diff != "" {
				t.Error(diff)
			}
			if wantKept := test.want.Awaited(); test.signed && (signingFor(f) == keepSigning) != wantKept {
				t.Errorf("the signing secret: %q", signingFor(f))
			}
		})
	}
}
