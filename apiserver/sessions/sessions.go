// Package sessions has a merchant create, read, list and cancel its sessions, and ask for refunds.
package sessions

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

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
	// MaxPerDay is how many sessions an account creates and refunds it asks for at once, and a day after that, but one a second in any case. All accounts of a
	// namespace create ten times as many. Zero: any number; at most MostPerDay.
	MaxPerDay int64
	Now       func() time.Time
}

// Handler has a merchant create, read, list and cancel sessions, and ask for refunds.
type Handler struct {
	store *store.Store
	gate  *caller.Gate
	links Links
	now   func() time.Time
	// perDay is nil without a limit.
	perDay *dayLimit
}

// New returns a Handler.
func New(o Options) *Handler {
	return &Handler{store: o.Store, gate: o.Gate, links: o.Links, now: o.Now, perDay: newDayLimit(o.MaxPerDay, o.Now)}
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

// orUnknown adds the second error to one after which nobody knows whether Redis has recorded what was asked for.
func orUnknown(err, unknown error) error {
	if isUnknown(err) {
		return fmt.Errorf("%w: %w", unknown, err)
	}
	return err
}

func isUnknown(err error) bool {
	return errors.Is(err, redis.ErrUnavailable) || errors.Is(err, redis.ErrCorrupt)
}
