package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

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
