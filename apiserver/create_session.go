package apiserver

import (
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// createdSession is the answer of POST /api/v1/sessions.
type createdSession struct {
	SessionID  string         `json:"sessionId"`
	Status     session.Status `json:"status"`
	ExpiresAt  int64          `json:"expiresAt"`
	QRPayload  string         `json:"qrPayload"`
	Idempotent bool           `json:"idempotent"`
}

func (a *api) createSession(w http.ResponseWriter, r *http.Request, from caller) error {
	wanted, err := readNewSession(w, r)
	if err != nil {
		if _, refused := a.admit(w, r, from); refused != nil {
			return refused
		}
		return err
	}
	wanted.MerchantName = from.Merchant.DisplayName
	wanted.Lifetime = time.Duration(from.Merchant.Sessions.LifetimeSeconds) * time.Second
	wanted.TellCreated = from.Merchant.TellCreated
	wanted.RejectMismatch = from.Merchant.Sessions.IdempotencyMismatch == v1alpha1.IdempotencyMismatchReject

	admitted, created, err := a.store.CreateSession(r.Context(), from.admission(), wanted)
	a.tellQuota(w, merchantQuota, admitted.Quota, err)
	if err != nil {
		return err
	}
	if created.Replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	if created.Mismatch {
		w.Header().Set("Idempotency-Mismatch", "true")
	}
	return respond(w, http.StatusCreated, createdSession{
		SessionID:  created.Session.ID.String(),
		Status:     created.Session.Status,
		ExpiresAt:  milliseconds(created.Session.ExpiresAt),
		QRPayload:  a.qrPayload(created.Session.ID),
		Idempotent: created.Replayed,
	})
}

// readNewSession reads what the request says of a new session.
func readNewSession(w http.ResponseWriter, r *http.Request) (store.NewSession, error) {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return store.NewSession{}, err
	}
	charge, err := readCharge(w, r)
	if err != nil {
		return store.NewSession{}, err
	}
	return store.NewSession{Charge: charge, Idempotency: key}, nil
}

func idempotencyKey(header http.Header) (session.IdempotencyKey, error) {
	lines := header.Values("Idempotency-Key")
	switch len(lines) {
	case 0:
		return session.IdempotencyKey{}, nil
	case 1:
		key, err := session.ParseIdempotencyKey(lines[0])
		if err != nil {
			return session.IdempotencyKey{}, requestError("Idempotency-Key " + err.Error())
		}
		return key, nil
	default:
		return session.IdempotencyKey{}, requestError("Idempotency-Key is given twice")
	}
}

// readCharge reads the body. Fields it does not know are ignored, so that clients may be newer.
func readCharge(w http.ResponseWriter, r *http.Request) (session.Charge, error) {
	fields, err := readObject(w, r)
	if err != nil {
		return session.Charge{}, err
	}
	amount, err := fields.cents("amountCents", session.AmountRule)
	if err != nil {
		return session.Charge{}, err
	}
	if amount == nil {
		return session.Charge{}, &session.FieldError{Field: "amountCents", Rule: session.AmountRule}
	}
	charge := session.Charge{AmountCents: *amount}
	if charge.TaxCents, err = fields.cents("taxCents", session.TaxRule); err != nil {
		return session.Charge{}, err
	}
	if charge.TipCents, err = fields.cents("tipCents", session.TipRule); err != nil {
		return session.Charge{}, err
	}
	if charge.OrderRef, err = fields.text("orderRef", session.OrderRefRule); err != nil {
		return session.Charge{}, err
	}
	if charge.CustomerEmail, err = fields.text("customerEmail", session.CustomerEmailRule); err != nil {
		return session.Charge{}, err
	}
	return charge, charge.Validate()
}
