package keys

import (
	"errors"
	"net/http"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
	"github.com/merchant-operator/merchant-operator/internal/directory"
)

// rotatedKey is the response of POST /api/v1/keys/rotate.
type rotatedKey struct {
	FullKey string `json:"fullKey"`
	Prefix  string `json:"prefix"`
	Warning string `json:"warning"`
}

// Rotate replaces the presented key, if it is the current one.
func (h *Handler) Rotate(e *web.Event, w http.ResponseWriter, r *http.Request, from caller.Caller) error {
	admitted, err := h.admitter.AdmitRotation(r.Context(), from.Admission(), rotationLimit)
	e.SetQuota(w.Header(), web.RotationLimit, admitted.Quota, err)
	if err != nil {
		return err
	}
	key, _, err := h.rotator.rotate(r.Context(), from.KeyID, rotation{
		at:     admitted.Now,
		origin: auditlog.Origin{By: auditlog.Key, Address: e.ClientAddress.String(), RequestID: e.RequestID()},
		permit: func(record published.KeyRecord) error {
			if !record.Usable(admitted.Now) || !record.Current.Digest.Equal(from.Digest) {
				// Another rotation was first, or the key is in its overlap and must not end its successor.
				return caller.UnauthorizedError{Reason: directory.ReasonRotated}
			}
			return from.PermittedBy(record, v1alpha1.PermissionRotate, e.ClientAddress)
		},
	})
	switch {
	case errors.Is(err, ErrNoKey):
		return caller.UnauthorizedError{Reason: directory.ReasonRotated}
	case errors.Is(err, ErrUnreadableKey): // the directory would not know it either
		return caller.UnauthorizedError{Reason: directory.ReasonUnknown}
	case err != nil:
		if _, forbidden := errors.AsType[caller.PermissionError](err); forbidden {
			web.ClearQuota(w.Header()) // as if this replica had known
		}
		return err
	}
	return web.Respond(w, http.StatusOK, rotatedKey{
		FullKey: key.Reveal(),
		Prefix:  key.Prefix(),
		Warning: "Store this key securely now: it is not shown again. The previous key no longer works.",
	})
}
