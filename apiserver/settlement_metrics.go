package apiserver

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// What became of a rail's report.
const (
	settlementApplied    = "applied"
	settlementRefund     = "refund_required"
	settlementNotApplied = "not_applied"
	settlementRepeated   = "repeated"
	settlementConflict   = "conflict"
	settlementUnknown    = "unknown_session"
	settlementError      = "error"
)

func newSettlements(registerer prometheus.Registerer) *prometheus.CounterVec {
	settlements := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_settlements_total",
		Help: "Payments that rails reported, by outcome and by what became of the report.",
	}, []string{"outcome", "result"})
	for _, outcome := range []session.Status{session.Completed, session.Failed} {
		for _, result := range []string{
			settlementApplied, settlementRefund, settlementNotApplied, settlementRepeated,
			settlementConflict, settlementUnknown, settlementError,
		} {
			settlements.WithLabelValues(string(outcome), result) // from 0, so that the first is seen as a rise
		}
	}
	return settlements
}

// count counts each report once, so that refunds are not counted again when a rail asks again.
func (r *rails) count(payment session.Payment, settlement store.Settlement, err error) {
	result := settlementNotApplied
	switch {
	case errors.Is(err, store.ErrPaymentConflict):
		result = settlementConflict
	case errors.Is(err, store.ErrNotFound):
		result = settlementUnknown
	case err != nil:
		result = settlementError
	case settlement.Repeated:
		result = settlementRepeated
	case settlement.RefundRequired:
		result = settlementRefund
	case settlement.Applied:
		result = settlementApplied
	}
	r.settlements.WithLabelValues(string(payment.Outcome), result).Inc()
}
