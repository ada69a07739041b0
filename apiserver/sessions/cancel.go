package sessions

import (
	"errors"
	"net/http"

	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// ErrPaymentInProgress is a session that a payment holds, so that it cannot be cancelled now.
var ErrPaymentInProgress = errors.New("a payment is in progress")

// EndedError is a session that has ended in another state than requested.
type EndedError struct{ Status session.Status }

func (e EndedError) Error() string { return "session is already " + string(e.Status) }

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
