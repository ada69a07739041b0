package rail

import (
	"net/http"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// railSession is a rail's view of a session: the response of GET /internal/v1/sessions/{id}. It has nothing of the payer.
type railSession struct {
	SessionID   string         `json:"sessionId"`
	Status      session.Status `json:"status"`
	AmountCents int64          `json:"amountCents"`
	Currency    string         `json:"currency"`
	ExpiresAt   int64          `json:"expiresAt"`
	EndedAt     int64          `json:"endedAt,omitempty"`   // absent while pending
	HeldUntil   int64          `json:"heldUntil,omitempty"` // absent if no payment holds it
	Merchant    payee          `json:"merchant"`
	Payments    []payment      `json:"payments"`
}

// payee is who gets the money. The rail maps the id to an account; accounts are not known here.
type payee struct {
	ID          string                 `json:"id"`
	DisplayName string                 `json:"displayName"` // what the payer saw
	Namespace   string                 `json:"namespace,omitempty"`
	Name        string                 `json:"name,omitempty"`
	State       v1alpha1.MerchantState `json:"state"`
}

// stateDeleted is the state of a merchant that was deleted. It has no namespace and no name any more.
const stateDeleted v1alpha1.MerchantState = "Deleted"

// payment is one that was reported.
type payment struct {
	PaymentRef  string         `json:"paymentRef"`
	Own         bool           `json:"own"` // reported by the account that asks
	Outcome     session.Status `json:"outcome"`
	AmountCents int64          `json:"amountCents"`
	Currency    string         `json:"currency"`
	PaidAt      int64          `json:"paidAt,omitempty"` // if the rail said
	// RefundedCents is how much of it went back.
	RefundedCents int64  `json:"refundedCents,omitempty"`
	Action        string `json:"action,omitempty"` // absent once all of it went back
}

// Get responds with a session and the payments reported of it, for a rail that asks what is to be paid.
func (h *Handler) Get(_ *web.Event, w http.ResponseWriter, r *http.Request, account string) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	payments, err := h.store.Payments(r.Context(), id)
	if err != nil {
		return err
	}
	view, err := h.newRailSession(payments, session.NewRail(account))
	if err != nil {
		return err
	}
	return web.Respond(w, http.StatusOK, view)
}

func (h *Handler) newRailSession(payments store.Payments, rail session.Rail) (railSession, error) {
	sess := payments.Session
	view := railSession{
		SessionID: sess.ID.String(), Status: sess.Status, AmountCents: sess.Charge.AmountCents, Currency: sess.Currency,
		ExpiresAt: sess.ExpiresAt.UnixMilli(), Payments: []payment{},
		Merchant: payee{ID: published.PublicMerchantID(sess.MerchantID), DisplayName: sess.MerchantName},
	}
	if sess.Status.Final() {
		view.EndedAt = sess.EndedAt.UnixMilli()
	}
	if !payments.HeldUntil.IsZero() {
		view.HeldUntil = payments.HeldUntil.UnixMilli()
	}
	merchant := h.directory.Merchant(sess.MerchantID)
	switch {
	case payments.MerchantDeleted, h.directory.MerchantDeleted(sess.MerchantID): // whatever a stale watch has left of it
		view.Merchant.State = stateDeleted
	case merchant == nil:
		return railSession{}, ErrMerchantUnknown
	default:
		view.Merchant.Namespace, view.Merchant.Name, view.Merchant.State = merchant.Namespace, merchant.Name, merchant.State
	}
	if sess.PaymentRef != "" {
		view.Payments = append(view.Payments, newPayment(sess.Payment(), payments.Refunds, rail))
	}
	for _, refused := range payments.Refused {
		reported := newPayment(refused.Payment, refused.Refunds, rail)
		if reported.RefundedCents < reported.AmountCents {
			reported.Action = refundRequired
		}
		view.Payments = append(view.Payments, reported)
	}
	for _, failed := range payments.Failed {
		view.Payments = append(view.Payments, newPayment(failed, nil, rail))
	}
	return view, nil
}

func newPayment(reported session.Payment, refunds []session.Refund, asks session.Rail) payment {
	view := payment{
		PaymentRef: reported.Ref, Own: reported.Rail == asks, Outcome: reported.Outcome, AmountCents: reported.AmountCents, Currency: reported.Currency,
		RefundedCents: session.SumRefunds(refunds),
	}
	if !reported.PaidAt.IsZero() {
		view.PaidAt = reported.PaidAt.UnixMilli()
	}
	return view
}
