package rail

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// settlementResult is the response of POST /internal/v1/sessions/{id}/settlement.
type settlementResult struct {
	SessionID string         `json:"sessionId"`
	Status    session.Status `json:"status"`
	Applied   bool           `json:"applied"`
	Action    string         `json:"action,omitempty"`
	EndedAt   int64          `json:"endedAt,omitempty"` // absent while pending
}

// refundRequired is the action for a payment that the rail must refund.
const refundRequired = "REFUND_REQUIRED"

// Settle records the report of a payment.
func (h *Handler) Settle(_ *web.Event, w http.ResponseWriter, r *http.Request, account string) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	payment, err := readPayment(w, r)
	if err != nil {
		return err
	}
	payment.Rail = session.NewRail(account)
	settle := h.store.Settle
	if h.directory.MerchantDeleted(id.MerchantID()) {
		settle = h.store.SettleDeleted
	}
	settlement, err := report(r.Context(), id, payment, settle)
	h.count(payment, settlement, err)
	if settlement.MerchantDeleted {
		h.log.Warn("a payment for a deleted merchant is to be refunded", "merchantID", settlement.Session.MerchantID, "paymentRef", payment.Ref)
	}
	if err != nil {
		return err
	}
	return web.Respond(w, http.StatusOK, newSettlementResult(settlement))
}

func newSettlementResult(settlement store.Settlement) settlementResult {
	settled := settlement.Session
	result := settlementResult{SessionID: settled.ID.String(), Status: settled.Status, Applied: settlement.Applied}
	if settlement.RefundRequired {
		result.Action = refundRequired
	}
	if settled.Status.Final() {
		result.EndedAt = settled.EndedAt.UnixMilli()
	}
	return result
}

// readPayment reads the body of a report.
func readPayment(w http.ResponseWriter, r *http.Request) (session.Payment, error) {
	fields, err := web.ReadObject(w, r)
	if err != nil {
		return session.Payment{}, err
	}
	payment := decodePayment(fields)
	if err := fields.Finish(w.Header(), false); err != nil {
		return session.Payment{}, err
	}
	return payment, payment.Validate()
}

// decodePayment decodes the fields of a report. One that is missing is the zero value, which Validate refuses.
func decodePayment(fields *web.Object) session.Payment {
	amount, _ := fields.Integer("amountCents", session.ReportedAmountRule)
	return session.Payment{
		Ref:         fields.Text("paymentRef", session.PaymentRefRule),
		Outcome:     session.Status(fields.Text("outcome", session.OutcomeRule)),
		AmountCents: amount,
		Currency:    decodeCurrency(fields),
		PaidAt:      fields.Timestamp("paidAt", session.PaidAtRule),
		Reason:      fields.Text("reason", session.ReasonRule),
	}
}

// decodeCurrency decodes an optional currency. An empty one is not as none: a rail that does not know what it has moved must not be taken to have
// moved the session's.
func decodeCurrency(fields *web.Object) string {
	if _, given := fields.Given("currency"); !given {
		return ""
	}
	return cmp.Or(fields.Text("currency", session.CurrencyRule), "-")
}

// The results of a report, as metric labels.
const (
	settlementApplied    = "applied"
	settlementRefund     = "refund_required"
	settlementDeleted    = "merchant_deleted"
	settlementNotApplied = "not_applied"
	settlementRepeated   = "repeated"
	settlementConflict   = "conflict"
	settlementUnknown    = "unknown_session"
	settlementTest       = "test_session"
	settlementError      = "error"
)

func newSettlements(registerer prometheus.Registerer) *prometheus.CounterVec {
	settlements := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_settlements_total",
		Help: "Payments reported by rails, by outcome and result.",
	}, []string{"outcome", "result"})
	for _, outcome := range []session.Status{session.Completed, session.Failed} {
		for _, result := range []string{
			settlementApplied, settlementRefund, settlementDeleted, settlementNotApplied, settlementRepeated,
			settlementConflict, settlementUnknown, settlementTest, settlementError,
		} {
			settlements.WithLabelValues(string(outcome), result) // start at 0, so that rate() sees the first one
		}
	}
	return settlements
}

// count counts a report. A repeated report counts as such, and not as another refund.
func (h *Handler) count(payment session.Payment, settlement store.Settlement, err error) {
	result := settlementNotApplied
	switch {
	case errors.Is(err, store.ErrPaymentConflict):
		result = settlementConflict
	case errors.Is(err, store.ErrNotFound):
		result = settlementUnknown
	case errors.Is(err, store.ErrTestSession):
		result = settlementTest
	case err != nil:
		result = settlementError
	case settlement.Repeated:
		result = settlementRepeated
	case settlement.MerchantDeleted:
		result = settlementDeleted
	case settlement.RefundRequired:
		result = settlementRefund
	case settlement.Applied:
		result = settlementApplied
	}
	h.settlements.WithLabelValues(string(payment.Outcome), result).Inc()
	if settlement.Unstored {
		h.unstored.WithLabelValues(modeLive).Inc()
	}
}
