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

// Refund records that the calling account has paid back a payment that it reported, or a part of it. It moves no money.
func (h *Handler) Refund(_ *web.Event, w http.ResponseWriter, r *http.Request, account string) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	refund, err := readRefund(w, r)
	if err != nil {
		return err
	}
	refund.Rail = session.NewRail(account)
	record := h.store.Refund
	if h.directory.MerchantDeleted(id.MerchantID()) {
		record = h.store.RefundDeleted
	}
	refunded, err := report(r.Context(), id, refund, record)
	h.refunds.WithLabelValues(refundLabel(refunded, err)).Inc()
	if err != nil {
		return err
	}
	return web.Respond(w, http.StatusOK, refundResult{
		SessionID: id.String(), PaymentRef: refund.PaymentRef, RefundRef: refund.Ref, AmountCents: refund.AmountCents, RefundedAt: refunded.At.UnixMilli(),
	})
}

// readRefund reads the body of a confirmation. A field that is missing is the zero value, which Validate refuses.
func readRefund(w http.ResponseWriter, r *http.Request) (session.Refund, error) {
	fields, err := web.ReadObject(w, r)
	if err != nil {
		return session.Refund{}, err
	}
	refund := session.Refund{
		PaymentRef: fields.Text("paymentRef", session.PaymentRefRule),
		Ref:        fields.Text("refundRef", session.RefundRefRule),
	}
	refund.AmountCents, _ = fields.Integer("amountCents", session.ReportedAmountRule)
	if err := fields.Finish(w.Header(), false); err != nil {
		return session.Refund{}, err
	}
	return refund, refund.Validate()
}

// The results of a confirmation, as metric labels.
const (
	refundRecorded       = "recorded"
	refundRepeated       = "repeated"
	refundConflict       = "conflict"
	refundExceeds        = "exceeds_payment"
	refundTooMany        = "too_many"
	refundUnknownPayment = "unknown_payment"
	refundUnknownSession = "unknown_session"
	refundError          = "error"
)

func newRefunds(registerer prometheus.Registerer) *prometheus.CounterVec {
	refunds := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_refunds_total",
		Help: "Refunds confirmed by rails, by result.",
	}, []string{"result"})
	for _, result := range []string{
		refundRecorded, refundRepeated, refundConflict, refundExceeds, refundTooMany, refundUnknownPayment, refundUnknownSession, refundError,
	} {
		refunds.WithLabelValues(result) // start at 0, so that rate() sees the first one
	}
	return refunds
}

func refundLabel(refunded store.Refunded, err error) string {
	switch {
	case errors.Is(err, store.ErrRefundConflict):
		return refundConflict
	case errors.Is(err, store.ErrRefundExceedsPayment):
		return refundExceeds
	case errors.Is(err, store.ErrTooManyRefunds):
		return refundTooMany
	case errors.Is(err, store.ErrNoPayment):
		return refundUnknownPayment
	case errors.Is(err, store.ErrNotFound):
		return refundUnknownSession
	case err != nil:
		return refundError
	case refunded.Repeated:
		return refundRepeated
	}
	return refundRecorded
}
