package apiserver

import (
	"net/http"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// merchantSession is the merchant's own view of a session, the answer of GET /api/v1/sessions/{id} and of
// a cancel.
type merchantSession struct {
	SessionID   string         `json:"sessionId"`
	Status      session.Status `json:"status"`
	AmountCents int64          `json:"amountCents"`
	OrderRef    string         `json:"orderRef,omitempty"`
	TaxCents    *int64         `json:"taxCents,omitempty"`
	TipCents    *int64         `json:"tipCents,omitempty"`
	CreatedAt   int64          `json:"createdAt"`
	ExpiresAt   int64          `json:"expiresAt"`
	EndedAt     int64          `json:"endedAt,omitempty"`    // absent while pending
	PaymentRef  string         `json:"paymentRef,omitempty"` // of what completed or failed it
	Reason      string         `json:"reason,omitempty"`     // of a failure, if the rail gave one
	QRPayload   string         `json:"qrPayload"`
}

func (a *api) getSession(w http.ResponseWriter, r *http.Request, from caller) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		if _, refused := a.admit(w, r, from); refused != nil {
			return refused
		}
		return errNoSession
	}
	admitted, read, err := a.store.Session(r.Context(), from.admission(), id)
	a.tellQuota(w, merchantQuota, admitted.Quota, err)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, a.shown(read))
}

// shown is what a merchant sees of its session.
func (a *api) shown(read session.Session) merchantSession {
	shown := merchantSession{
		SessionID:   read.ID.String(),
		Status:      read.Status,
		AmountCents: read.Charge.AmountCents,
		OrderRef:    read.Charge.OrderRef,
		TaxCents:    read.Charge.TaxCents,
		TipCents:    read.Charge.TipCents,
		CreatedAt:   milliseconds(read.CreatedAt),
		ExpiresAt:   milliseconds(read.ExpiresAt),
		PaymentRef:  read.PaymentRef,
		QRPayload:   a.qrPayload(read.ID),
	}
	if read.Status.Final() {
		shown.EndedAt = milliseconds(read.EndedAt)
	}
	if read.Status == session.Failed {
		shown.Reason = read.Reason
	}
	return shown
}
