package apiserver

import (
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/clientaddr"
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

// cancelSession ends a pending session. Cancelling a cancelled one succeeds again, so that a lost answer
// can be asked for once more. The body says nothing and is not read.
func (a *api) cancelSession(w http.ResponseWriter, r *http.Request, from caller) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		if _, refused := a.admit(w, r, from); refused != nil {
			return refused
		}
		return errNoSession
	}
	admitted, cancelled, err := a.store.Cancel(r.Context(), from.admission(), id)
	a.tellQuota(w, merchantQuota, admitted.Quota, err)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, a.shown(cancelled))
}

// publicSession is the answer of GET /api/v1/public/sessions/{id}: what the payer may see.
type publicSession struct {
	MerchantName string         `json:"merchantName"`
	AmountCents  int64          `json:"amountCents"`
	Status       session.Status `json:"status"`
}

// publicSession needs no key: the unguessable id is the capability.
func (a *api) publicSession(w http.ResponseWriter, r *http.Request) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return errNoSession
	}
	address, err := a.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	if err != nil {
		return err
	}
	quota, read, err := a.store.PublicSession(r.Context(),
		store.PublicAdmission{Subject: clientaddr.LimitKey(address), Limit: a.publicLimit}, id)
	a.tellQuota(w, addressQuota, quota, err)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, publicSession{
		MerchantName: read.MerchantName,
		AmountCents:  read.AmountCents,
		Status:       read.Status,
	})
}

// qrPayload is what the payer's QR code says.
func (a *api) qrPayload(id session.ID) string { return a.qrScheme + "://qr/" + id.String() }
