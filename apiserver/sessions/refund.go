package sessions

import (
	"context"
	"errors"
	"net/http"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// ErrRefundUnknown means that the refund may have been asked for. To ask again with its Idempotency-Key is safe.
var ErrRefundUnknown = errors.New("unknown whether the refund was asked for")

// requestedRefund is the response of POST /api/v1/sessions/{id}/refunds.
type requestedRefund struct {
	SessionID string `json:"sessionId"`
	payments.RefundRequest
	Currency   string `json:"currency"`
	Idempotent bool   `json:"idempotent"`
	Livemode   *bool  `json:"livemode,omitempty"`
}

// Refund asks the rail of the payment that completed a session to pay it back, or a part of it, or returns what the same Idempotency-Key has asked
// for, as it is now.
func (h *Handler) Refund(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	asked, err := readRefund(w, r)
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	if err := h.countToday(e, w, r, from); err != nil {
		return err
	}
	admitted, requested, err := h.store.RequestRefund(context.WithoutCancel(r.Context()), from.Admission(), id, asked) // as in Create
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	h.perDay.uncount(from, requested.Repeated, err)
	if err != nil {
		return orUnknown(err, ErrRefundUnknown)
	}
	if requested.Repeated {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	return web.Respond(w, http.StatusCreated, requestedRefund{
		SessionID: id.String(), RefundRequest: payments.NewRefundRequest(requested.RefundRequest), Currency: requested.Currency,
		Idempotent: requested.Repeated, Livemode: web.Livemode(id.TestMode()),
	})
}

// readRefund reads header and body of a request. A field that it does not know is refused, and so are a query and an amount of
// null: a misspelt or lost amount would ask for the whole payment.
func readRefund(w http.ResponseWriter, r *http.Request) (store.AskedRefund, error) {
	if r.URL.RawQuery != "" {
		return store.AskedRefund{}, web.RequestError("a refund takes no query: amountCents belongs into the body")
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return store.AskedRefund{}, err
	}
	if key.IsZero() {
		return store.AskedRefund{}, web.RequestError("Idempotency-Key is required, so that a repeated request gives no money back twice")
	}
	fields, err := web.ReadObject(w, r)
	if err != nil {
		return store.AskedRefund{}, err
	}
	fields.RefuseNull("amountCents", session.RefundAmountRule)
	asked := store.AskedRefund{
		Idempotency: key, AmountCents: fields.Cents("amountCents", session.RefundAmountRule), Reason: fields.Text("reason", session.ReasonRule),
	}
	if err := fields.Finish(w.Header(), true); err != nil {
		return store.AskedRefund{}, err
	}
	return asked, session.ValidateRefundRequest(asked.AmountCents, asked.Reason)
}
