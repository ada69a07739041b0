package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

const (
	// shownDeadLetters is how many the page of a Merchant lists.
	shownDeadLetters = 10
	// maxResend is how many one form sends again.
	maxResend = 1000
)

// deadLetter is an event that was given up.
type deadLetter struct {
	ID       string
	Kind     v1alpha1.WebhookEvent // empty: the event cannot be read
	Order    string                // order reference of its session
	FailedAt time.Time
	Attempts int
	Why      string
}

func newDeadLetter(w web.Words, letter outbox.DeadLetter) deadLetter {
	d := deadLetter{
		ID: letter.Event.ID, Kind: letter.Event.Kind, FailedAt: letter.FailedAt, Attempts: letter.Attempts,
		Why: reasonText(w, letter.Reason, letter.Answer),
	}
	if letter.Event.Session != nil {
		d.Order = letter.Event.Session.Charge.OrderRef
	}
	return d
}

// reasonText says why an event was not delivered.
func reasonText(w web.Words, reason, answer string) string {
	if !w.Known("reason." + reason) {
		return w.Text("reason.other", reason)
	}
	return w.Text("reason."+reason, answer)
}

// hideOrders takes away what only who may see payments may see.
func hideOrders(letters []deadLetter) {
	for i := range letters {
		letters[i].Order = ""
	}
}

// listDeadLetters returns the newest dead letters of a Merchant. The error is redis.ErrUnavailable or redis.ErrCorrupt.
func (c *console) listDeadLetters(ctx context.Context, merchant *v1alpha1.Merchant, limit int) ([]deadLetter, error) {
	found, err := c.outbox.DeadLetters(ctx, outbox.DeadLetterFilter{MerchantID: published.ID(merchant.UID), Limit: limit})
	if err != nil {
		return nil, err
	}
	letters := make([]deadLetter, len(found))
	for i, letter := range found {
		letters[i] = newDeadLetter(c.pages.Words, letter)
	}
	return letters, nil
}

// Errors of sending dead letters again. Nothing was sent.
var (
	// errNoDeadLetter is the answer to what is no dead letter, no longer, or another merchant's.
	errNoDeadLetter = errors.New("not a dead letter of this merchant")
	errDisabled     = errors.New("the endpoint is disabled")
	errNoWebhook    = errors.New("the merchant has no webhook")
)

// resendForm asks before dead letters are sent again.
type resendForm struct {
	Merchant *v1alpha1.Merchant
	Event    string       // id of the only one; empty: all
	Letters  []deadLetter // those to send, the newest first
	Left     int64        // how many dead letters are left then
	Webhook  webhookHealth
	Clock    web.Clock
	Error    string
}

// newResendForm returns the form that a request asks for. Errors: errNoDeadLetter, those of Redis.
func (c *console) newResendForm(r *web.Request) (form resendForm, err error) {
	form = resendForm{Merchant: r.Merchant, Event: r.FormValue("event"), Clock: c.pages.Clock(r.Merchant)}
	if form.Webhook, err = c.readHealth(r.Context(), r.Merchant); err != nil {
		return form, err
	}
	if form.Letters, err = c.listDeadLetters(r.Context(), r.Merchant, maxResend); err != nil {
		return form, err
	}
	may, err := c.rights.Read(r.Context(), r.Viewer, r.Merchant)
	if err != nil {
		return form, err
	}
	if !may.ViewPayments {
		hideOrders(form.Letters)
	}
	if form.Event != "" {
		form.Letters = slices.DeleteFunc(form.Letters, func(letter deadLetter) bool { return letter.ID != form.Event })
	}
	if len(form.Letters) == 0 {
		return form, errNoDeadLetter
	}
	form.Left = max(0, form.Webhook.Dead-int64(len(form.Letters)))
	return form, nil
}

func (c *console) renderResendForm(w http.ResponseWriter, r *web.Request, status int, form resendForm) error {
	return c.pages.Render(w, status, "dead-letters", r.View(form))
}

func (c *console) resendDeadLettersForm(w http.ResponseWriter, r *web.Request) error {
	form, err := c.newResendForm(r)
	if err != nil {
		return err
	}
	return c.renderResendForm(w, r, http.StatusOK, form)
}

// resendDeadLetters changes no spec, so it works for Merchants that Git manages too.
func (c *console) resendDeadLetters(w http.ResponseWriter, r *web.Request) error {
	form, err := c.newResendForm(r)
	if err != nil {
		return err
	}
	what := form.Event
	if what == "" {
		what = fmt.Sprintf("%d dead letters", len(form.Letters))
	}
	sent, err := c.resend(r.Context(), form, r.PostFormValue("resume") == "yes")
	if sent > 0 || err != nil {
		c.audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionResend, Object: r.Merchant, ID: what, Generation: r.Merchant.Generation, Err: err})
	}
	switch {
	case errors.Is(err, errNoWebhook):
		form.Error = c.pages.Words.Text("resend.nowebhook")
	case errors.Is(err, errDisabled):
		form.Error = c.pages.Words.Text("resend.disabled")
		if form.Webhook, err = c.readHealth(r.Context(), r.Merchant); err != nil {
			return err
		}
	case err != nil:
		return err
	case sent == 0: // somebody else was faster
		return errNoDeadLetter
	default:
		return r.LeadTo(w, "#webhook")
	}
	return c.renderResendForm(w, r, http.StatusConflict, form)
}

// resend returns how many were sent. Errors: errNoWebhook, errDisabled, those of Redis.
func (c *console) resend(ctx context.Context, form resendForm, resume bool) (sent int, err error) {
	if form.Merchant.Spec.Webhook == nil {
		return 0, errNoWebhook
	}
	request := outbox.ResendRequest{MerchantID: published.ID(form.Merchant.UID), Resume: resume}
	for _, letter := range form.Letters {
		request.IDs = append(request.IDs, letter.ID)
	}
	resent, err := c.outbox.Resend(ctx, request)
	if err == nil && resent.Sent == 0 && len(resent.Disabled) > 0 {
		err = errDisabled
	}
	return resent.Sent, err
}
