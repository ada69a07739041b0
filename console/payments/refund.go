package payments

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// refundForm is the form that asks for a refund of the payment that completed a session. What is typed is asked for when it was confirmed.
type refundForm struct {
	Merchant *v1alpha1.Merchant
	links
	ID       string
	Test     bool
	Order    string
	Currency string
	// Paid is the amount of the payment, and Left what may still be asked for; empty: nothing.
	Paid, Left string
	Example    string // how to type an amount
	// Nonce is the Idempotency-Key of the request: the same form asks once, however often it is sent.
	Nonce string
	// Amount is what was typed, empty for all that is left, and Reason why.
	Amount, Reason string
	// Asking is the amount to confirm, and Confirmed the same for the form, in cents; zero: what was typed is not checked yet.
	Asking    string
	Confirmed int64
	// Error is why the form was refused, and Wrong the name of the field; empty: none of them.
	Error, Wrong string
}

// refundedSession returns the session that the path names, if it is the merchant's and still kept.
func (h *Handler) refundedSession(r *web.Request) (session.Story, error) {
	id, err := paymentID(r)
	if err != nil {
		return session.Story{}, err
	}
	story, err := h.Store.ReadStory(r.Context(), id)
	if errors.Is(err, store.ErrNotFound) {
		err = ErrNoPayment
	}
	return story, err
}

// newRefundForm returns the form before it was sent, or as it was sent.
func (h *Handler) newRefundForm(r *web.Request, story *session.Story) refundForm {
	s, words := &story.Session, h.Pages.Words(r.Context())
	form := refundForm{
		Merchant: r.Merchant, links: newLinks(r.Merchant, s.ID.TestMode()), ID: s.ID.String(), Test: s.ID.TestMode(), Order: s.Charge.OrderRef,
		Currency: s.Currency, Paid: words.Amount(s.Charge.AmountCents, s.Currency), Example: words.PlainAmount(s.Charge.AmountCents, s.Currency),
		Nonce: r.PostFormValue("nonce"), Amount: strings.TrimSpace(r.PostFormValue("amount")), Reason: strings.TrimSpace(r.PostFormValue("reason")),
	}
	if left := story.RefundableCents(); left > 0 {
		form.Left = words.Amount(left, s.Currency)
	}
	if _, err := session.ParseIdempotencyKey(form.Nonce); err != nil {
		form.Nonce = rand.Text()
	}
	return form
}

func (h *Handler) renderRefund(w http.ResponseWriter, r *web.Request, status int, form refundForm) error {
	return h.Pages.Render(w, r.Request, status, "refund", r.TitledView(h.Pages.Words(r.Context()).Text("refund.title", form.Paid), form))
}

// OverdueRefunds returns which refunds the shop has asked for that have waited for so long that somebody should ask why.
func (h *Handler) OverdueRefunds(ctx context.Context, merchant *v1alpha1.Merchant) (store.Overdue, error) {
	return h.Store.OverdueRequests(ctx, newAccount(merchant, false), session.RefundOverdue)
}

// ShowRefund shows the form that asks for a refund.
func (h *Handler) ShowRefund(w http.ResponseWriter, r *web.Request) error {
	story, err := h.refundedSession(r)
	if err != nil {
		return err
	}
	form := h.newRefundForm(r, &story)
	form.Error = nothingLeft(h.Pages.Words(r.Context()), &story)
	return h.renderRefund(w, r, http.StatusOK, form)
}

// Refund asks for a refund of the amount that was confirmed; of another one it asks back first. It works for Merchants of every state.
func (h *Handler) Refund(w http.ResponseWriter, r *web.Request) error {
	story, err := h.refundedSession(r)
	if err != nil {
		return err
	}
	words, form, left := h.Pages.Words(r.Context()), h.newRefundForm(r, &story), story.RefundableCents()
	cents, isAmount := left, true
	if form.Amount != "" {
		cents, isAmount = words.ParseAmount(form.Amount, form.Currency)
	}
	confirmed, _ := strconv.ParseInt(r.PostFormValue("confirmed"), 10, 64) // 0: not confirmed
	invalid := session.ValidateRefundRequest(&cents, form.Reason)
	if field, ok := errors.AsType[*session.FieldError](invalid); ok && field.Field == "reason" {
		form.Error, form.Wrong = words.Text("refund.error.reason"), "reason"
		return h.renderRefund(w, r, http.StatusUnprocessableEntity, form)
	}
	switch asksAgain := confirmed == 0 || confirmed != cents; {
	case asksAgain && left <= 0:
		form.Error = nothingLeft(words, &story)
	case !isAmount || invalid != nil:
		form.Error, form.Wrong = words.Text("refund.error.amount", form.Example), "amount"
	case asksAgain && cents > left:
		form.Error, form.Wrong = words.Text("refund.error.exceeds", form.Left), "amount"
	case asksAgain:
		form.Amount = words.PlainAmount(cents, form.Currency) // all that is left now: it may be less later
		form.Asking, form.Confirmed = words.Amount(cents, form.Currency), cents
		return h.renderRefund(w, r, http.StatusOK, form)
	default:
		return h.requestRefund(w, r, story.Session.ID, cents, form)
	}
	return h.renderRefund(w, r, http.StatusUnprocessableEntity, form)
}

// requestRefund asks for the refund, and leads to its payment. A form that was sent before leads there too.
func (h *Handler) requestRefund(w http.ResponseWriter, r *web.Request, id session.ID, cents int64, form refundForm) error {
	key, err := session.ParseIdempotencyKey(form.Nonce)
	if err != nil {
		return err
	}
	requested, err := h.Store.RequestRefundFor(r.Context(), id, store.AskedRefund{Idempotency: key, AmountCents: &cents, Reason: form.Reason})
	if err != nil || !requested.Repeated {
		h.Audit.Record(r.Context(), audit.Entry{
			Viewer: r.Viewer, Action: audit.ActionRefund, Object: r.Merchant, ID: requested.ID, Generation: r.Merchant.Generation, Err: err,
		})
	}
	switch {
	case err == nil:
		return r.LeadTo(w, "/payments/"+id.String()+"#refunds")
	case errors.Is(err, redis.ErrUnavailable):
		return fmt.Errorf("%w: %w", ErrRefundUnknown, err)
	case errors.Is(err, store.ErrNotFound):
		return ErrNoPayment
	}
	refusal := slices.IndexFunc(refusals, func(row refusal) bool { return errors.Is(err, row.err) })
	if refusal < 0 {
		return err
	}
	// Somebody has asked for another refund since the form was shown, so less may be left.
	story, err := h.refundedSession(r)
	if err != nil {
		return err
	}
	words := h.Pages.Words(r.Context())
	form = h.newRefundForm(r, &story)
	form.Nonce = rand.Text() // this one asks for nothing, or for what it has asked for before
	form.Error, form.Wrong = words.Text(refusals[refusal].words, form.Left), "amount"
	if nothing := nothingLeft(words, &story); nothing != "" {
		form.Error = nothing
	}
	return h.renderRefund(w, r, http.StatusConflict, form)
}

// refusal is why the store refuses a request, and the words for it. {0} is what is left of the payment.
type refusal struct {
	err   error
	words string
}

var refusals = []refusal{
	{store.ErrNotCompleted, "refund.error.unpaid"},
	{store.ErrRefundExceedsPayment, "refund.error.exceeds"},
	{store.ErrNoMoreRequests, "refund.error.many"},
	{store.ErrRequestConflict, "refund.error.sent"},
}

// nothingLeft says why nothing of the payment can be refunded; empty: something can.
func nothingLeft(words web.Words, story *session.Story) string {
	switch {
	case story.Session.Status != session.Completed:
		return words.Text("refund.error.unpaid")
	case story.RefundableCents() <= 0:
		return words.Text("refund.error.nothing")
	}
	return ""
}

// paymentID returns the id of the session that the path names, which is the merchant's. The error is ErrNoPayment.
func paymentID(r *web.Request) (session.ID, error) {
	id, err := session.ParseID(r.PathValue("payment"))
	if err != nil || id.MerchantID() != published.ID(r.Merchant.UID) {
		return session.ID{}, ErrNoPayment
	}
	return id, nil
}
