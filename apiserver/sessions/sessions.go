// Package sessions has a merchant create, read, list and cancel its sessions.
package sessions

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// ErrChargeUnknown means that the session may have been created. To send the charge again with its Idempotency-Key is safe.
var ErrChargeUnknown = errors.New("unknown whether the session was created")

// ErrTooMany refuses a new session of an account that created as many as one may in a day.
var ErrTooMany = errors.New("too many sessions of a day")

// ErrPaymentInProgress is a session that a payment holds, so that it cannot be cancelled now.
var ErrPaymentInProgress = errors.New("a payment is in progress")

// EndedError is a session that has ended in another state than requested.
type EndedError struct{ Status session.Status }

func (e EndedError) Error() string { return "session is already " + string(e.Status) }

// Links are what a payer gets of a session.
type Links interface {
	// Header is the value of the header Link.
	Header(id session.ID) string
	// Payload is the text of the QR code.
	Payload(id session.ID) string
}

// Options are those of a Handler.
type Options struct {
	Store *store.Store
	Gate  *caller.Gate
	Links Links
	// MaxPerDay is how many sessions an account creates at once, and a day after that, but one a second in any case. All accounts of a
	// namespace create ten times as many. Zero: any number; at most MostPerDay.
	MaxPerDay int64
	Now       func() time.Time
}

// Handler has a merchant create, read and cancel sessions.
type Handler struct {
	store *store.Store
	gate  *caller.Gate
	links Links
	// perDay is nil without a limit.
	perDay *dayLimit
}

// New returns a Handler.
func New(o Options) *Handler {
	return &Handler{store: o.Store, gate: o.Gate, links: o.Links, perDay: newDayLimit(o.MaxPerDay, o.Now)}
}

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
	request, err := readNewSession(w, r, from.TestMode)
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	request.MerchantName, request.TimeZone = from.Merchant.DisplayName, from.Merchant.TimeZone
	request.Currency = from.Merchant.Currency
	request.Lifetime = time.Duration(from.Merchant.Sessions.LifetimeSeconds) * time.Second
	request.EmitCreated = from.Merchant.EmitCreated
	request.RejectMismatch = from.Merchant.Sessions.IdempotencyMismatch == v1alpha1.IdempotencyMismatchReject

	if quota, allowed := h.perDay.allow(from); !allowed {
		err := h.gate.AdmitInvalid(e, w, r, from, ErrTooMany)
		if errors.Is(err, ErrTooMany) {
			e.SetLimited(w.Header(), web.SessionLimit, quota)
		}
		return err
	}
	admitted, created, err := h.store.CreateSession(r.Context(), from.Admission(), request)
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	if created.Replayed || err != nil && r.Context().Err() == nil { // a client that has gone may have its session
		h.perDay.refund(from)
	}
	switch {
	case errors.Is(err, redis.ErrUnavailable) || errors.Is(err, redis.ErrCorrupt):
		return fmt.Errorf("%w: %w", ErrChargeUnknown, err)
	case err != nil:
		return err
	}
	if created.Replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	if created.Mismatch {
		w.Header().Set("Idempotency-Mismatch", "true")
	}
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

// readNewSession reads header and body of a request; strict as in readCharge.
func readNewSession(w http.ResponseWriter, r *http.Request, strict bool) (store.NewSession, error) {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return store.NewSession{}, err
	}
	charge, err := readCharge(w, r, strict)
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
			return session.IdempotencyKey{}, web.RequestError("Idempotency-Key " + err.Error())
		}
		return key, nil
	default:
		return session.IdempotencyKey{}, web.RequestError("Idempotency-Key must be sent at most once")
	}
}

// readCharge reads the body. It ignores unknown fields, so that clients may be newer than the service; strict: it refuses them.
func readCharge(w http.ResponseWriter, r *http.Request, strict bool) (session.Charge, error) {
	fields, err := web.ReadObject(w, r)
	if err != nil {
		return session.Charge{}, err
	}
	charge := session.Charge{
		AmountCents:   fields.RequiredInteger("amountCents", session.AmountRule),
		TaxCents:      fields.Cents("taxCents", session.TaxRule),
		TipCents:      fields.Cents("tipCents", session.TipRule),
		OrderRef:      fields.Text("orderRef", session.OrderRefRule),
		CustomerEmail: fields.Text("customerEmail", session.CustomerEmailRule),
	}
	if err := fields.Finish(w.Header(), strict); err != nil {
		return session.Charge{}, err
	}
	if err := charge.Validate(); err != nil {
		return session.Charge{}, err
	}
	charge.CustomerEmail = charge.ReceiptAddress()
	return charge, nil
}

// Get responds with a session of the merchant.
func (h *Handler) Get(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	admitted, story, err := h.store.Story(r.Context(), from.Admission(), id)
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	if err != nil {
		return err
	}
	view := payments.NewStory(&story)
	view.QRPayload = h.links.Payload(id)
	return web.Respond(w, http.StatusOK, view)
}

// newView returns the merchant's view of a session.
func (h *Handler) newView(sess *session.Session) payments.Payment {
	view := payments.New(sess)
	view.QRPayload = h.links.Payload(sess.ID)
	return view
}

// Cancel ends a pending session. A repeated cancel succeeds again, so that a client can retry after a lost response.
// The body is ignored.
func (h *Handler) Cancel(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return h.gate.AdmitInvalid(e, w, r, from, err)
	}
	admitted, cancelled, err := h.store.Cancel(r.Context(), from.Admission(), id)
	e.SetQuota(w.Header(), web.MerchantLimit, admitted.Quota, err)
	if held, ok := errors.AsType[store.HeldError](err); ok {
		web.SetRetryAfter(w.Header(), held.Left)
		return ErrPaymentInProgress
	}
	switch {
	case errors.Is(err, store.ErrSessionEnded):
		return EndedError{cancelled.Status}
	case err != nil:
		return err
	}
	return web.Respond(w, http.StatusOK, h.newView(&cancelled))
}
