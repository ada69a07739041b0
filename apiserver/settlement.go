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
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

var (
	errPlainHTTP         = errors.New("an API key would be sent over plain HTTP")
	errSettlementUnknown = errors.New("unknown whether the report was recorded")
)

// internalAPI has the handlers of the internal listener.
type internalAPI struct {
	base

	// guardOf returns the guard of a path.
	guardOf     func(path string) *authz.Guard
	directory   *directory.Directory
	store       *store.Store
	rotator     rotator
	records     *recordReads
	settlements *prometheus.CounterVec
	// confidential is true if nobody on the network can read a response.
	confidential bool
}

// withToken authenticates and authorizes the caller for the path before next.
func (r *internalAPI) withToken(path string, next handler) handler {
	guard := r.guardOf(path)
	return func(w http.ResponseWriter, request *http.Request) error {
		if err := guard.Check(request.Context(), request.RemoteAddr, bearerToken(request.Header)); err != nil {
			return err
		}
		return next(w, request)
	}
}

// confidentially refuses requests whose response could be read on the network.
func (r *internalAPI) confidentially(next handler) handler {
	if r.confidential {
		return next
	}
	return func(http.ResponseWriter, *http.Request) error { return errPlainHTTP }
}

// settlementResult is the response of POST /internal/v1/sessions/{id}/settlement.
type settlementResult struct {
	SessionID string         `json:"sessionId"`
	Status    session.Status `json:"status"`
	Applied   bool           `json:"applied"`
	Action    string         `json:"action,omitempty"`
	EndedAt   int64          `json:"endedAt,omitempty"` // absent while pending
}

// refundRequired tells the rail to refund the payment.
const refundRequired = "REFUND_REQUIRED"

// settle records the report of a payment.
func (r *internalAPI) settle(w http.ResponseWriter, request *http.Request) error {
	id, err := session.ParseID(request.PathValue("id"))
	if err != nil {
		return err
	}
	payment, err := readPayment(w, request)
	if err != nil {
		return err
	}
	// A report counts even if the rail disconnects, because the money has moved. The store has a timeout of its own.
	settle := r.store.Settle
	if r.directory.MerchantDeleted(id.MerchantID()) {
		settle = r.store.SettleDeleted
	}
	settlement, err := settle(context.WithoutCancel(request.Context()), id, payment)
	r.count(payment, settlement, err)
	if settlement.MerchantDeleted {
		r.log.Warn("a payment for a deleted merchant is to be refunded", "merchantID", settlement.Session.MerchantID, "paymentRef", payment.Ref)
	}
	switch {
	case errors.Is(err, redis.ErrUnavailable), errors.Is(err, redis.ErrCorrupt):
		return fmt.Errorf("%w: %w", errSettlementUnknown, err)
	case err != nil:
		return err
	}
	return respond(w, http.StatusOK, settlementResultOf(settlement))
}

func settlementResultOf(settlement store.Settlement) settlementResult {
	settled := settlement.Session
	result := settlementResult{SessionID: settled.ID.String(), Status: settled.Status, Applied: settlement.Applied}
	if settlement.RefundRequired {
		result.Action = refundRequired
	}
	if settled.Status.Final() {
		result.EndedAt = unixMilli(settled.EndedAt)
	}
	return result
}

// readPayment reads the body of a report.
func readPayment(w http.ResponseWriter, r *http.Request) (session.Payment, error) {
	fields, err := readObject(w, r)
	if err != nil {
		return session.Payment{}, err
	}
	payment := paymentOf(fields)
	if err := fields.finish(w.Header(), false); err != nil {
		return session.Payment{}, err
	}
	return payment, payment.Validate()
}

// paymentOf decodes the fields of a report. One that is missing is the zero value, which Validate refuses.
func paymentOf(fields *object) session.Payment {
	amount, _ := fields.integer("amountCents", session.AmountRule)
	return session.Payment{
		Ref:         fields.text("paymentRef", session.PaymentRefRule),
		Outcome:     session.Status(fields.text("outcome", session.OutcomeRule)),
		AmountCents: amount,
		PaidAt:      fields.timestamp("paidAt", session.PaidAtRule),
		Reason:      fields.text("reason", session.ReasonRule),
	}
}

// rfc3339Form refuses what time.Parse accepts: a comma, an hour of one digit, an offset of a day.
var rfc3339Form = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// timestamp reads a time: Unix milliseconds, as in the rest of the API, or an RFC 3339 string, as payment networks write it.
// It is rounded down to milliseconds. Zero: absent.
func (o *object) timestamp(name, rule string) time.Time {
	literal, given := o.given(name)
	if !given {
		return time.Time{}
	}
	var at time.Time
	if milliseconds, err := session.ParseCents(literal); err == nil { // an integer in any notation
		at = time.UnixMilli(milliseconds)
	} else if text := o.text(name, rule); rfc3339Form.MatchString(text) {
		at, _ = time.Parse(time.RFC3339, text)
	}
	if at.IsZero() { // not a time, or the year 1
		o.fail(name, rule)
	}
	return at.UTC().Truncate(time.Millisecond)
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
func (r *internalAPI) count(payment session.Payment, settlement store.Settlement, err error) {
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
	r.settlements.WithLabelValues(string(payment.Outcome), result).Inc()
	if settlement.Unstored {
		r.metrics.unstored.WithLabelValues(modeLive).Inc()
	}
}
