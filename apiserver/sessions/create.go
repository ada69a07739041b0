package sessions

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/mailbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// ErrChargeUnknown means that the session may have been created. To send the charge again with its Idempotency-Key is safe.
var ErrChargeUnknown = errors.New("unknown whether the session was created")

// createdSession is the response of POST /api/v1/sessions.
type createdSession struct {
	SessionID  string         `json:"sessionId"`
	Status     session.Status `json:"status"`
	ExpiresAt  int64          `json:"expiresAt"`
	QRPayload  string         `json:"qrPayload"`
	Idempotent bool           `json:"idempotent"`
	Livemode   *bool          `json:"livemode,omitempty"`
}

// Create creates a session, or returns the one of an earlier request with the same Idempotency-Key.
func (h *Handler) Create(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	request, emailIgnored, err := readNewSession(w, r, from)
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	request.MerchantName, request.TimeZone = from.Merchant.DisplayName, from.Merchant.TimeZone
	request.Currency = from.Merchant.Currency
	request.Lifetime = time.Duration(from.Merchant.Sessions.LifetimeSeconds) * time.Second
	request.EmitCreated = from.Merchant.EmitCreated
	request.RejectMismatch = from.Merchant.Sessions.IdempotencyMismatch == v1alpha1.IdempotencyMismatchReject

	if err := h.countToday(e, w, r, from); err != nil {
		return err
	}
	// Also for a client that has gone: else who closes connections, with whatever key, counts sessions that nobody has made.
	admitted, created, err := h.store.CreateSession(context.WithoutCancel(r.Context()), from.Admission(), request)
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	h.perDay.uncount(from, created.Replayed, err)
	if err != nil {
		return orUnknown(err, ErrChargeUnknown)
	}
	if created.Replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	if created.Mismatch {
		w.Header().Set("Idempotency-Mismatch", "true")
	}
	if emailIgnored { // of this request, so that a retry has it too
		w.Header().Set("Customer-Email-Ignored", "true")
	}
	w.Header().Set("Session-Currency", created.Session.Currency)
	w.Header()["Link"] = []string{h.links.Header(created.Session.ID)}
	return web.Respond(w, http.StatusCreated, createdSession{
		SessionID:  created.Session.ID.String(),
		Status:     created.Session.Status,
		ExpiresAt:  created.Session.ExpiresAt.UnixMilli(),
		QRPayload:  h.links.Payload(created.Session.ID),
		Idempotent: created.Replayed,
		Livemode:   web.Livemode(created.Session.ID.TestMode()),
	})
}

// readNewSession reads header and body of a request; emailIgnored as in readCharge.
func readNewSession(w http.ResponseWriter, r *http.Request, from caller.Caller) (request store.NewSession, emailIgnored bool, err error) {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return store.NewSession{}, false, err
	}
	charge, emailIgnored, err := readCharge(w, r, from)
	if err != nil {
		return store.NewSession{}, false, err
	}
	return store.NewSession{Charge: charge, Idempotency: key}, emailIgnored, nil
}

func idempotencyKey(header http.Header) (session.IdempotencyKey, error) {
	lines := header.Values("Idempotency-Key")
	switch len(lines) {
	case 0:
		return session.IdempotencyKey{}, nil
	case 1:
		key, err := session.ParseIdempotencyKey(lines[0])
		if err != nil {
			return session.IdempotencyKey{}, web.RequestError("Idempotency-Key " + err.Error())
		}
		return key, nil
	default:
		return session.IdempotencyKey{}, web.RequestError("Idempotency-Key must be sent at most once")
	}
}

// readCharge reads the charge from the body. It ignores unknown fields, so that clients may be newer than the service. With a
// test key it refuses unknown fields.
// emailIgnored: the customerEmail is no address that a receipt may go to. A payer typed it, and it never stops a sale.
func readCharge(w http.ResponseWriter, r *http.Request, from caller.Caller) (charge session.Charge, emailIgnored bool, err error) {
	fields, err := web.ReadObject(w, r)
	if err != nil {
		return session.Charge{}, false, err
	}
	charge = session.Charge{
		AmountCents: fields.RequiredInteger("amountCents", session.AmountRule),
		TaxCents:    fields.Cents("taxCents", session.TaxRule),
		TipCents:    fields.Cents("tipCents", session.TipRule),
		OrderRef:    fields.Text("orderRef", session.OrderRefRule),
		Description: fields.Text("description", session.DescriptionRule),
		ReturnURL:   fields.Text("returnUrl", session.ReturnURLRule),
	}
	if merchantURL := from.Merchant.Page.ReturnURL; charge.ReturnURL != "" && !session.AllowsReturnURL(merchantURL, charge.ReturnURL) {
		fields.Ignore("returnUrl", returnURLRule(merchantURL), from.TestMode)
	}
	email := mailbox.Trim(fields.Text("customerEmail", session.CustomerEmailRule))
	if err := fields.Finish(w.Header(), from.TestMode); err != nil {
		return session.Charge{}, false, err
	}
	if err := charge.Validate(); err != nil {
		return session.Charge{}, false, err
	}
	if _, ok := mailbox.Recipient(email); ok {
		charge.CustomerEmail = email
	}
	return charge, charge.CustomerEmail != email, nil
}

// returnURLRule says which return URLs the Merchant allows, to developers with a test key. A live
// charge with another one is made all the same, and its page leads to the Merchant's: so no change
// of the Merchant stops a sale, or refuses the retry of a charge.
func returnURLRule(merchantURL string) string {
	if merchantURL == "" {
		return "is not used, because the Merchant has no page.returnURL"
	}
	return "must be an https URL with the host and port of the Merchant's page.returnURL, " + merchantURL
}
