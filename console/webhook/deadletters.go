package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

const (
	// ShownDeadLetters is how many the page of a Merchant lists.
	ShownDeadLetters = 10
	// maxResend is how many one form sends again.
	maxResend = 1000
)

// DeadLetter is an event that was given up.
type DeadLetter struct {
	ID       string
	Kind     v1alpha1.WebhookEvent // empty: the event cannot be read
	Order    string                // order reference of its session
	FailedAt time.Time
	Attempts int
	Why      string
}

func newDeadLetter(w web.Words, letter outbox.DeadLetter) DeadLetter {
	d := DeadLetter{
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

// HideOrders takes away what only who may see payments may see.
func HideOrders(letters []DeadLetter) {
	for i := range letters {
		letters[i].Order = ""
	}
}

// ListDeadLetters returns the newest dead letters of a Merchant. The error is redis.ErrUnavailable or redis.ErrCorrupt.
func (h *Handler) ListDeadLetters(ctx context.Context, merchant *v1alpha1.Merchant, limit int) ([]DeadLetter, error) {
	return h.listDeadLetters(ctx, outbox.DeadLetterFilter{MerchantID: published.ID(merchant.UID), Limit: limit})
}

func (h *Handler) listDeadLetters(ctx context.Context, filter outbox.DeadLetterFilter) ([]DeadLetter, error) {
	found, err := h.Outbox.DeadLetters(ctx, filter)
	if err != nil {
		return nil, err
	}
	letters := make([]DeadLetter, len(found))
	for i, letter := range found {
		letters[i] = newDeadLetter(h.Pages.Words(ctx), letter)
	}
	return letters, nil
}

// Errors of sending dead letters again. Nothing was sent.
var (
	// ErrNoDeadLetter is the answer to what is no dead letter, no longer, or another merchant's.
	ErrNoDeadLetter = errors.New("not a dead letter of this merchant")
	errDisabled     = errors.New("the endpoint is disabled")
	errNoWebhook    = errors.New("the merchant has no webhook")
)

// resendForm is the form that sends dead letters again.
type resendForm struct {
	Merchant *v1alpha1.Merchant
	Event    string     // id of the only one; empty: all
	Count    int64      // how many are to be sent
	First    DeadLetter // the newest of them
	Left     int64      // how many dead letters are left then
	Webhook  Health
	Clock    web.Clock
	Error    string
}

// newResendForm returns the form that a request asks for. It returns ErrNoDeadLetter, redis.ErrUnavailable or redis.ErrCorrupt.
func (h *Handler) newResendForm(r *web.Request) (form resendForm, err error) {
	form = resendForm{Merchant: r.Merchant, Event: r.FormValue("event"), Clock: h.Pages.Clock(r.Context(), r.Merchant)}
	if form.Webhook, err = h.ReadHealth(r.Context(), r.Merchant); err != nil {
		return form, err
	}
	// The form shows one. To read all would hold up Redis for every look at the form.
	letters, err := h.listDeadLetters(r.Context(), outbox.DeadLetterFilter{MerchantID: published.ID(r.Merchant.UID), ID: form.Event, Limit: 1})
	if err != nil {
		return form, err
	}
	if len(letters) == 0 {
		return form, ErrNoDeadLetter
	}
	may, err := h.Rights.Read(r.Context(), r.Viewer, r.Merchant)
	if err != nil {
		return form, err
	}
	if !may.ViewPayments {
		HideOrders(letters)
	}
	form.First, form.Count = letters[0], 1
	if form.Event == "" {
		form.Count = max(1, min(form.Webhook.Dead, maxResend))
	}
	form.Left = max(0, form.Webhook.Dead-form.Count)
	return form, nil
}

func (h *Handler) renderResendForm(w http.ResponseWriter, r *web.Request, status int, form resendForm) error {
	return h.Pages.Render(w, r.Request, status, "dead-letters", r.View(form))
}

// ShowResendForm asks before dead letters are sent again.
func (h *Handler) ShowResendForm(w http.ResponseWriter, r *web.Request) error {
	form, err := h.newResendForm(r)
	if err != nil {
		return err
	}
	return h.renderResendForm(w, r, http.StatusOK, form)
}

// ResendDeadLetters changes no spec, so it works for Merchants that Git manages too.
func (h *Handler) ResendDeadLetters(w http.ResponseWriter, r *web.Request) error {
	form, err := h.newResendForm(r)
	if err != nil {
		return err
	}
	sent, err := h.resend(r.Context(), form, r.PostFormValue("resume") == "yes")
	count := int64(sent)
	if err != nil {
		count = form.Count
	}
	what := fmt.Sprintf("%d dead letters", count)
	if form.Event != "" { // its id has that of a session, and more people may read Events
		what = "dead letter " + feed.HashID(form.Event)
	}
	if sent > 0 || err != nil {
		h.Audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionResend, Object: r.Merchant, ID: what, Generation: r.Merchant.Generation, Err: err})
	}
	switch {
	case errors.Is(err, errNoWebhook):
		form.Error = h.Pages.Words(r.Context()).Text("resend.nowebhook")
	case errors.Is(err, errDisabled):
		form.Error = h.Pages.Words(r.Context()).Text("resend.disabled")
		if form.Webhook, err = h.ReadHealth(r.Context(), r.Merchant); err != nil {
			return err
		}
	case err != nil:
		return err
	case sent == 0: // somebody else was faster
		return ErrNoDeadLetter
	default:
		return r.LeadTo(w, "#webhook")
	}
	return h.renderResendForm(w, r, http.StatusConflict, form)
}

// resend returns how many were sent. It returns errNoWebhook, errDisabled, redis.ErrUnavailable or redis.ErrCorrupt.
func (h *Handler) resend(ctx context.Context, form resendForm, resume bool) (sent int, err error) {
	switch {
	case form.Merchant.Spec.Webhook == nil:
		return 0, errNoWebhook
	case form.Webhook.Disabled() && !resume: // before anything is read: who repeats it would hold up Redis
		return 0, errDisabled
	}
	request := outbox.ResendRequest{MerchantID: published.ID(form.Merchant.UID), Resume: resume}
	letters, err := h.Outbox.DeadLetters(ctx, outbox.DeadLetterFilter{MerchantID: request.MerchantID, ID: form.Event, Limit: maxResend})
	if err != nil {
		return 0, err
	}
	for _, letter := range letters {
		request.IDs = append(request.IDs, letter.Event.ID)
	}
	resent, err := h.Outbox.Resend(ctx, request)
	if err == nil && resent.Sent == 0 && len(resent.Disabled) > 0 {
		err = errDisabled
	}
	return resent.Sent, err
}
