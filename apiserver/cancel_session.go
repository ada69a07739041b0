package apiserver

import (
	"net/http"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

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
