package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// rails is what the internal endpoints work with.
type rails struct {
	edge

	guard       *authz.Guard
	store       *store.Store
	settlements *prometheus.CounterVec
}

func newRails(around edge, guard *authz.Guard, redis *store.Store, registerer prometheus.Registerer) *rails {
	return &rails{edge: around, guard: guard, store: redis, settlements: newSettlements(registerer)}
}

// withToken makes an endpoint of one that only rails may use.
func (r *rails) withToken(next endpoint) endpoint {
	return func(w http.ResponseWriter, request *http.Request) error {
		if err := r.guard.Check(request.Context(), credential(request.Header)); err != nil {
			return err
		}
		return next(w, request)
	}
}

// settled is the answer of POST /internal/v1/sessions/{id}/settlement.
type settled struct {
	SessionID string         `json:"sessionId"`
	Status    session.Status `json:"status"`
	Applied   bool           `json:"applied"`
	Action    string         `json:"action,omitempty"`
	EndedAt   int64          `json:"endedAt,omitempty"` // absent while pending
}

// refundRequired asks the rail to send the money back.
const refundRequired = "REFUND_REQUIRED"

// settle takes what a rail reports of a payment.
func (r *rails) settle(w http.ResponseWriter, request *http.Request) error {
	id, err := session.ParseID(request.PathValue("id"))
	if err != nil {
		return errNoSession
	}
	payment, err := readPayment(w, request)
	if err != nil {
		return err
	}
	// A rail that hangs up now has reported nevertheless, for its money has moved. The store bounds the wait.
	settlement, err := r.store.Settle(context.WithoutCancel(request.Context()), id, payment)
	r.count(payment, settlement, err)
	switch {
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrCorrupt):
		return fmt.Errorf("%w: %w", errNotSettled, err)
	case err != nil:
		return err
	}
	answer := settled{SessionID: id.String(), Status: settlement.Session.Status, Applied: settlement.Applied}
	if settlement.RefundRequired {
		answer.Action = refundRequired
	}
	if settlement.Session.Status.Final() {
		answer.EndedAt = milliseconds(settlement.Session.EndedAt)
	}
	return respond(w, http.StatusOK, answer)
}

// readPayment reads the body of a settlement, as strictly as that of a charge.
func readPayment(w http.ResponseWriter, r *http.Request) (session.Payment, error) {
	fields, err := readObject(w, r)
	if err != nil {
		return session.Payment{}, err
	}
	var payment session.Payment
	if payment.Ref, err = fields.text("paymentRef", session.PaymentRefRule); err != nil {
		return session.Payment{}, err
	}
	outcome, err := fields.text("outcome", session.OutcomeRule)
	if err != nil {
		return session.Payment{}, err
	}
	payment.Outcome = session.Status(outcome)
	amount, err := fields.cents("amountCents", session.AmountRule)
	if err != nil {
		return session.Payment{}, err
	}
	if amount != nil { // without one it is 0, which is none either
		payment.AmountCents = *amount
	}
	if payment.PaidAt, err = moment(fields, "paidAt", session.PaidAtRule); err != nil {
		return session.Payment{}, err
	}
	if payment.Reason, err = fields.text("reason", session.ReasonRule); err != nil {
		return session.Payment{}, err
	}
	return payment, payment.Validate()
}

// rfc3339Form refuses what time.Parse lets pass: a comma, an hour of one digit, an offset of a day.
var rfc3339Form = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// moment reads a time, to the millisecond: a Unix timestamp in milliseconds, as this API writes it, or a
// string of RFC 3339, as payment networks do. Zero: not given.
func moment(fields *object, name, rule string) (time.Time, error) {
	literal, given := fields.given(name)
	if !given {
		return time.Time{}, nil
	}
	var at time.Time
	if milliseconds, err := session.ParseCents(literal); err == nil { // any integer, however it is spelt
		at = time.UnixMilli(milliseconds)
	} else {
		written, err := fields.text(name, rule)
		if err != nil {
			return time.Time{}, err
		}
		if at, err = time.Parse(time.RFC3339, written); err != nil || !rfc3339Form.MatchString(written) {
			return time.Time{}, &session.FieldError{Field: name, Rule: rule}
		}
	}
	if at.IsZero() { // a time, but of the year 1
		return time.Time{}, &session.FieldError{Field: name, Rule: rule}
	}
	return at.UTC().Truncate(time.Millisecond), nil
}

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
