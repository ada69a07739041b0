package console

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// attempt is an attempt to deliver an event, for people.
type attempt struct {
	At   time.Time
	Kind v1alpha1.WebhookEvent
	// Why says how it failed; of a delivered one it says that.
	Why  string
	Took string
}

func (c *console) newAttempt(a outbox.Attempt) attempt {
	return attempt{At: a.At, Kind: a.Kind, Why: reasonText(c.pages.Words, a.Reason, a.Answer), Took: duration(c.pages.Words, a.Took)}
}

// duration is how long an attempt took, in milliseconds or seconds.
func duration(w web.Words, d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return w.Text("attempt.took.none")
	case d < time.Second:
		return w.Text("attempt.took.ms", d.Milliseconds())
	}
	return w.Text("attempt.took.s", fmt.Sprintf("%.1f", d.Seconds()))
}

// readAttempts returns the last failed attempts, the newest first. Errors are those of readHealth.
func (c *console) readAttempts(ctx context.Context, merchant *v1alpha1.Merchant) ([]attempt, error) {
	found, err := c.outbox.Attempts(ctx, published.ID(merchant.UID), c.now())
	if err != nil {
		return nil, err
	}
	attempts := make([]attempt, len(found.Failed))
	for i := range found.Failed {
		attempts[i] = c.newAttempt(found.Failed[i])
	}
	return attempts, nil
}

// sendTestEvent changes no spec, so it works for Merchants that Git manages too, and for a disabled webhook.
func (c *console) sendTestEvent(w http.ResponseWriter, r *web.Request) error {
	if r.Merchant.Spec.Webhook == nil {
		return web.ErrNotFound
	}
	now := c.now()
	test := feed.NewWebhookTest(published.ID(r.Merchant.UID), r.Merchant.Spec.DisplayName, now.UTC().Format(time.RFC3339Nano), now)
	sent, err := c.outbox.SendWebhookTest(r.Context(), test)
	if sent || err != nil {
		c.audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionSendTest, Object: r.Merchant, ID: test.ID, Generation: r.Merchant.Generation, Err: err})
	}
	if err != nil {
		return err
	}
	// One that was sent a moment ago, by anybody, has the same answer: the page shows that.
	return r.LeadTo(w, "/webhook/test")
}

// testPage is the answer to a test event.
type testPage struct {
	Merchant *v1alpha1.Merchant
	Base     string
	Clock    web.Clock
	// Sent: there was one in the last day. Answered, Delivered: its attempt has ended, and how.
	Sent, Answered, Delivered bool
	Attempt                   attempt
	Answer                    template.HTML
	EventID                   string
	Disabled                  bool // the webhook
	// Former: the answer is that of a URL that the webhook has no longer.
	Former bool
}

// maxWaits bounds the pages that wait for somebody else at once, and maxPersonWaits those of one person: each keeps a connection for as long as
// answerTimeout.
const maxWaits, maxPersonWaits = 64, 4

var errTooManyWaits = errors.New("too many pages wait at once")

// answerTimeout is more than an attempt takes, which ends after 15 s, and less than a request may.
const answerTimeout = 18 * time.Second

// showTestEvent waits for the answer of the merchant's server, so that the page has it without a script.
func (c *console) showTestEvent(w http.ResponseWriter, r *web.Request) error {
	test, err := c.awaitAnswer(r.Context(), r.Viewer, published.ID(r.Merchant.UID))
	if err != nil {
		return err
	}
	health, err := c.readHealth(r.Context(), r.Merchant)
	if err != nil {
		return err
	}
	page := testPage{
		Merchant: r.Merchant, Base: web.MerchantURL(r.Merchant), Clock: c.pages.Clock(r.Merchant), Disabled: health.Disabled(),
		Sent: test.EventID != "", Answered: test.Answered, Delivered: test.Reason == "delivered", Attempt: c.newAttempt(test.Attempt), EventID: test.EventID,
	}
	if webhook := r.Merchant.Spec.Webhook; test.Target != "" {
		page.Former = webhook == nil || test.Target != (&published.Webhook{Webhook: *webhook}).Target()
	}
	if page.Delivered {
		page.Answer = c.pages.Words.HTML("test.delivered", test.Answer)
	}
	return c.pages.Render(w, http.StatusOK, "test-event", r.View(page))
}

// awaitAnswer waits for the answer to the last test event of a merchant. All who wait for one merchant's share the reads. Where too many wait
// already it returns what is known now.
func (c *console) awaitAnswer(ctx context.Context, viewer login.Person, merchantID string) (outbox.WebhookTest, error) {
	end, err := c.waits.Begin(viewer.User)
	if err != nil {
		found, err := c.outbox.Attempts(ctx, merchantID, c.now())
		return found.WebhookTest, err
	}
	defer end()
	shared := c.answers.DoChan(merchantID, func() (any, error) { return c.pollAnswer(context.WithoutCancel(ctx), merchantID) })
	select {
	case got := <-shared:
		test, _ := got.Val.(outbox.WebhookTest)
		return test, got.Err
	case <-ctx.Done():
		return outbox.WebhookTest{}, ctx.Err()
	}
}

func (c *console) pollAnswer(ctx context.Context, merchantID string) (outbox.WebhookTest, error) {
	const interval, old = 250 * time.Millisecond, 5 * time.Minute // nobody waits for an old one
	waiting, cancel := context.WithTimeout(ctx, c.answerTimeout)
	defer cancel()
	for {
		found, err := c.outbox.Attempts(ctx, merchantID, c.now())
		if err != nil || found.WebhookTest.Answered || found.WebhookTest.EventID == "" || c.now().Sub(found.WebhookTest.At) > old {
			return found.WebhookTest, err
		}
		select {
		case <-time.After(interval):
		case <-waiting.Done():
			return found.WebhookTest, nil
		}
	}
}
