package apiserver

import (
	"net/http"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// merchantSession is the answer of GET /api/v1/sessions/{id}: the merchant's own view.
type merchantSession struct {
	SessionID   string         `json:"sessionId"`
	Status      session.Status `json:"status"`
	AmountCents int64          `json:"amountCents"`
	OrderRef    string         `json:"orderRef,omitempty"`
	TaxCents    *int64         `json:"taxCents,omitempty"`
	TipCents    *int64         `json:"tipCents,omitempty"`
	CreatedAt   int64          `json:"createdAt"`
	ExpiresAt   int64          `json:"expiresAt"`
	EndedAt     int64          `json:"endedAt,omitempty"` // absent while pending
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
	tellQuota(w, merchantQuota, admitted.Quota, err)
	if err != nil {
		return err
	}
	shown := merchantSession{
		SessionID:   read.ID.String(),
		Status:      read.Status,
		AmountCents: read.Charge.AmountCents,
		OrderRef:    read.Charge.OrderRef,
		TaxCents:    read.Charge.TaxCents,
		TipCents:    read.Charge.TipCents,
		CreatedAt:   milliseconds(read.CreatedAt),
		ExpiresAt:   milliseconds(read.ExpiresAt),
		QRPayload:   a.qrPayload(read.ID),
	}
	if read.Status.Final() {
		shown.EndedAt = milliseconds(read.EndedAt)
	}
	return respond(w, http.StatusOK, shown)
}
