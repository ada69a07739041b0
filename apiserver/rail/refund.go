package rail

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// refundResult is the response of POST /internal/v1/sessions/{id}/refunds. It says nothing that a later refund changes, so a repeated confirmation
// gets the same one.
type refundResult struct {
	SessionID   string `json:"sessionId"`
	PaymentRef  string `json:"paymentRef"`
	RefundRef   string `json:"refundRef"`
	AmountCents int64  `json:"amountCents"`
	RefundedAt  int64  `json:"refundedAt"`
}

// rejectedRefund is the response to a rejection, which a repeated one gets as well.
type rejectedRefund struct {
	SessionID   string               `json:"sessionId"`
	PaymentRef  string               `json:"paymentRef"`
	RefundRef   string               `json:"refundRef"`
	AmountCents int64                `json:"amountCents"`
	Outcome     session.RefundStatus `json:"outcome"`
	RejectedAt  int64                `json:"rejectedAt"`
}

// Refund records that the calling account has paid back a payment that it reported, or a part of it, or that it rejects what a merchant has asked for.
// It moves no money.
func (h *Handler) Refund(_ *web.Event, w http.ResponseWriter, r *http.Request, account string) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	said, err := readRefund(w, r)
	if err != nil {
		return err
	}
	said.refund.Rail = session.NewRail(account)
	deleted := h.directory.MerchantDeleted(id.MerchantID())
	if said.rejected {
		return h.reject(w, r, id, said, deleted)
	}
	record := h.store.Refund
	if deleted {
		record = h.store.RefundDeleted
	}
	refund := said.refund
	refunded, err := report(r.Context(), id, refund, record)
	h.refunds.WithLabelValues(refundLabel(refunded.Repeated, false, err)).Inc()
	if err != nil {
		return err
	}
	return web.Respond(w, http.StatusOK, refundResult{
		SessionID: id.String(), PaymentRef: refund.PaymentRef, RefundRef: refund.Ref, AmountCents: refund.AmountCents, RefundedAt: refunded.At.UnixMilli(),
	})
}

func (h *Handler) reject(w http.ResponseWriter, r *http.Request, id session.ID, said refundReport, deleted bool) error {
	record := h.store.RejectRefund
	if deleted {
		record = h.store.RejectRefundDeleted
	}
	rejection := store.Rejection{Rail: said.refund.Rail, PaymentRef: said.refund.PaymentRef, RefundID: said.refund.Ref, Reason: said.reason}
	request, err := report(r.Context(), id, rejection, record)
	h.refunds.WithLabelValues(refundLabel(request.Repeated, true, err)).Inc()
	if err != nil {
		return err
	}
	return web.Respond(w, http.StatusOK, rejectedRefund{
		SessionID: id.String(), PaymentRef: rejection.PaymentRef, RefundRef: request.ID, AmountCents: request.AmountCents, Outcome: request.Status,
		RejectedAt: request.DecidedAt.UnixMilli(),
	})
}

// refundReport is what a rail says of a refund.
type refundReport struct {
	refund session.Refund
	// rejected: it will not pay back what the merchant has asked for, for the reason.
	rejected bool
	reason   string
}

// outcomeRule is the rule of the outcome of a refund.
const outcomeRule = "must be CONFIRMED, or REJECTED for a request of the merchant"

// readRefund reads the body of a confirmation or a rejection. A field that is missing is the zero value, which Validate refuses.
func readRefund(w http.ResponseWriter, r *http.Request) (refundReport, error) {
	fields, err := web.ReadObject(w, r)
	if err != nil {
		return refundReport{}, err
	}
	said := refundReport{refund: session.Refund{
		PaymentRef: fields.Text("paymentRef", session.PaymentRefRule),
		Ref:        fields.Text("refundRef", session.RefundRefRule),
	}}
	amount, amountGiven := fields.Integer("amountCents", session.ReportedAmountRule)
	said.refund.AmountCents = amount
	outcome := fields.Text("outcome", outcomeRule)
	said.reason = fields.Text("reason", session.ReasonRule)
	if err := fields.Finish(w.Header(), false); err != nil {
		return refundReport{}, err
	}
	switch outcome {
	case string(session.RefundConfirmed), "":
		return said, said.refund.Validate()
	case string(session.RefundRejected):
		if amountGiven { // a replica that does not know the outcome yet takes this for a confirmation
			return refundReport{}, &session.FieldError{Field: "amountCents", Rule: "must be absent when outcome is REJECTED"}
		}
		said.rejected = true
		return said, session.ValidateRejection(said.refund.PaymentRef, said.refund.Ref, said.reason)
	}
	return refundReport{}, &session.FieldError{Field: "outcome", Rule: outcomeRule}
}

// The results of a confirmation, as metric labels.
const (
	refundRecorded       = "recorded"
	refundRepeated       = "repeated"
	refundConflict       = "conflict"
	refundExceeds        = "exceeds_payment"
	refundTooMany        = "too_many"
	refundUnknownPayment = "unknown_payment"
	refundRejected       = "rejected"
	refundConfirmed      = "confirmed_before"
	refundUnknownRequest = "unknown_request"
	refundUnknownSession = "unknown_session"
	refundError          = "error"
)

func newRefunds(registerer prometheus.Registerer) *prometheus.CounterVec {
	refunds := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_refunds_total",
		Help: "Refunds confirmed or rejected by rails, by result.",
	}, []string{"result"})
	for _, result := range []string{
		refundRecorded, refundRepeated, refundConflict, refundExceeds, refundTooMany, refundUnknownPayment, refundRejected,
		refundConfirmed, refundUnknownRequest, refundUnknownSession, refundError,
	} {
		refunds.WithLabelValues(result) // start at 0, so that rate() sees the first one
	}
	return refunds
}

func refundLabel(repeated, rejection bool, err error) string {
	switch {
	case errors.Is(err, store.ErrRefundConflict):
		return refundConflict
	case errors.Is(err, store.ErrRefundExceedsPayment):
		return refundExceeds
	case errors.Is(err, store.ErrTooManyRefunds):
		return refundTooMany
	case errors.Is(err, store.ErrNoPayment):
		return refundUnknownPayment
	case errors.Is(err, store.ErrNoRequest):
		return refundUnknownRequest
	case errors.Is(err, store.ErrRequestConfirmed):
		return refundConfirmed
	case errors.Is(err, store.ErrNotFound):
		return refundUnknownSession
	case err != nil:
		return refundError
	case repeated:
		return refundRepeated
	case rejection:
		return refundRejected
	}
	return refundRecorded
}
