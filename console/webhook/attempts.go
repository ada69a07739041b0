package webhook

import (
	"context"
	"html/template"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// Attempt is an attempt to deliver an event, for people.
type Attempt struct {
	At   time.Time
	Kind v1alpha1.WebhookEvent
	// Why says how it failed; if it was delivered, Why says so.
	Why  string
	Took string
}

func newAttempt(w web.Words, a outbox.Attempt) Attempt {
	return Attempt{At: a.At, Kind: a.Kind, Why: reasonText(w, a.Reason, a.Answer), Took: duration(w, a.Took)}
}

// duration is how long an attempt took, in milliseconds or seconds.
func duration(w web.Words, d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return w.Text("attempt.took.none")
	case d < time.Second:
		return w.Text("attempt.took.ms", d.Milliseconds())
	}
	return w.Text("attempt.took.s", w.Decimal(d.Seconds(), 1))
}

// ReadAttempts returns the last failed attempts, the newest first. It returns the errors of ReadHealth.
func (h *Handler) ReadAttempts(ctx context.Context, merchant *v1alpha1.Merchant) ([]Attempt, error) {
	found, err := h.Outbox.Attempts(ctx, published.ID(merchant.UID), h.Pages.Now())
	if err != nil {
		return nil, err
	}
	attempts := make([]Attempt, len(found.Failed))
	for i := range found.Failed {
		attempts[i] = newAttempt(h.Pages.Words(ctx), found.Failed[i])
	}
	return attempts, nil
}

// SendTestEvent changes no spec, so it works for Merchants that Git manages too, and for a disabled webhook.
func (h *Handler) SendTestEvent(w http.ResponseWriter, r *web.Request) error {
	if r.Merchant.Spec.Webhook == nil {
		return web.ErrNotFound
	}
	now := h.Pages.Now()
	test := feed.NewWebhookTest(published.ID(r.Merchant.UID), r.Merchant.Spec.DisplayName, now.UTC().Format(time.RFC3339Nano), now)
	sent, err := h.Outbox.SendWebhookTest(r.Context(), test)
	if sent || err != nil {
		h.Audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionSendTest, Object: r.Merchant, ID: test.ID, Generation: r.Merchant.Generation, Err: err})
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
	Attempt                   Attempt
	Answer                    template.HTML
	EventID                   string
	Disabled                  bool // the webhook
	// Former: the answer came from a URL that the webhook no longer has.
	Former bool
}

// ShowTestEvent waits for the answer of the merchant's server, so that the page has it without a script.
func (h *Handler) ShowTestEvent(w http.ResponseWriter, r *web.Request) error {
	test, err := h.awaitAnswer(r.Context(), r)
	if err != nil {
		return err
	}
	health, err := h.ReadHealth(r.Context(), r.Merchant)
	if err != nil {
		return err
	}
	words := h.Pages.Words(r.Context())
	page := testPage{
		Merchant: r.Merchant, Base: web.MerchantURL(r.Merchant), Clock: h.Pages.Clock(r.Context(), r.Merchant), Disabled: health.Disabled(),
		Sent: test.EventID != "", Answered: test.Answered, Delivered: test.Reason == "delivered", Attempt: newAttempt(words, test.Attempt), EventID: test.EventID,
	}
	if webhook := r.Merchant.Spec.Webhook; test.Target != "" {
		page.Former = webhook == nil || test.Target != (&published.Webhook{Webhook: *webhook}).Target()
	}
	if page.Delivered {
		page.Answer = words.HTML("test.delivered", test.Answer)
	}
	return h.Pages.Render(w, r.Request, http.StatusOK, "test-event", r.View(page))
}

// awaitAnswer waits for the answer to the last test event of a merchant. All who wait for one merchant's share the reads. Where too many wait
// already it returns what is known now.
func (h *Handler) awaitAnswer(ctx context.Context, r *web.Request) (outbox.WebhookTest, error) {
	merchantID := published.ID(r.Merchant.UID)
	end, err := h.Waits.Begin(r.Viewer.User, r.Merchant.Namespace)
	if err != nil {
		found, err := h.Outbox.Attempts(ctx, merchantID, h.Pages.Now())
		return found.WebhookTest, err
	}
	defer end()
	shared := h.answers.DoChan(merchantID, func() (any, error) { return h.pollAnswer(context.WithoutCancel(ctx), merchantID) })
	select {
	case got := <-shared:
		test, _ := got.Val.(outbox.WebhookTest)
		return test, got.Err
	case <-ctx.Done():
		return outbox.WebhookTest{}, ctx.Err()
	}
}

func (h *Handler) pollAnswer(ctx context.Context, merchantID string) (outbox.WebhookTest, error) {
	const interval, old = 250 * time.Millisecond, 5 * time.Minute // nobody waits for an old one
	waiting, cancel := context.WithTimeout(ctx, h.AnswerTimeout)
	defer cancel()
	for {
		found, err := h.Outbox.Attempts(ctx, merchantID, h.Pages.Now())
		if err != nil || found.WebhookTest.Answered || found.WebhookTest.EventID == "" || h.Pages.Now().Sub(found.WebhookTest.At) > old {
			return found.WebhookTest, err
		}
		select {
		case <-time.After(interval):
		case <-waiting.Done():
			return found.WebhookTest, nil
		}
	}
}
