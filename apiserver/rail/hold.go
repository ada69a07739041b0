package rail

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

// holdResult is the response of POST /internal/v1/sessions/{id}/hold.
type holdResult struct {
	SessionID string `json:"sessionId"`
	HeldUntil int64  `json:"heldUntil,omitempty"` // absent after a release
}

// Hold holds a session for a payment of the account, or releases it.
func (h *Handler) Hold(_ *web.Event, w http.ResponseWriter, r *http.Request, account string) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return err
	}
	hold, err := readHold(w, r)
	if err != nil {
		return err
	}
	hold.Rail = session.NewRail(account)
	until, err := h.hold(r, id, hold)
	if held, ok := errors.AsType[store.HeldError](err); ok {
		web.SetRetryAfter(w.Header(), held.Left)
	}
	h.holds.WithLabelValues(newHoldLabel(hold, err)).Inc()
	if err != nil {
		return err
	}
	result := holdResult{SessionID: id.String()}
	if !until.IsZero() {
		result.HeldUntil = until.UnixMilli()
	}
	return web.Respond(w, http.StatusOK, result)
}

func (h *Handler) hold(r *http.Request, id session.ID, hold store.Hold) (time.Time, error) {
	if hold.Duration > 0 {
		merchant, deleted := h.directory.Merchant(id.MerchantID()), h.directory.MerchantDeleted(id.MerchantID())
		if merchant == nil && !deleted {
			if _, err := h.store.Payments(r.Context(), id); err != nil { // there may be no such session
				return time.Time{}, err
			}
			return time.Time{}, ErrMerchantUnknown
		}
		hold.MerchantNotActive = deleted || merchant.State != v1alpha1.MerchantActive
	}
	until, err := h.store.Hold(r.Context(), id, hold)
	if errors.Is(err, admission.ErrMerchantNotActive) {
		err = ErrMerchantNotActive // another answer than to a key
	}
	return until, err
}

// readHold reads the body of a hold.
func readHold(w http.ResponseWriter, r *http.Request) (store.Hold, error) {
	fields, err := web.ReadObject(w, r)
	if err != nil {
		return store.Hold{}, err
	}
	ref, seconds := fields.Text("paymentRef", session.PaymentRefRule), fields.RequiredInteger("seconds", session.HoldRule)
	if err := fields.Finish(w.Header(), false); err != nil {
		return store.Hold{}, err
	}
	return store.Hold{Ref: ref, Duration: time.Duration(seconds) * time.Second}, session.ValidateHold(ref, seconds)
}

// The results of a hold, as metric labels.
const (
	holdHeld      = "held"
	holdReleased  = "released"
	holdBusy      = "busy"
	holdUsed      = "reference_used"
	holdEnded     = "session_ended"
	holdNotActive = "merchant_not_active"
	holdTooSoon   = "expires_too_soon"
	holdTooLong   = "hold_too_long"
	holdUnknown   = "unknown_session"
	holdError     = "error"
)

func newHolds(registerer prometheus.Registerer) *prometheus.CounterVec {
	holds := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_holds_total",
		Help: "Requests of rails to hold or release a session, by result.",
	}, []string{"result"})
	for _, result := range []string{
		holdHeld, holdReleased, holdBusy, holdUsed, holdEnded, holdNotActive, holdTooSoon, holdTooLong, holdUnknown, holdError,
	} {
		holds.WithLabelValues(result)
	}
	return holds
}

func newHoldLabel(hold store.Hold, err error) string {
	_, busy := errors.AsType[store.HeldError](err)
	switch {
	case err == nil && hold.Duration == 0:
		return holdReleased
	case err == nil:
		return holdHeld
	case busy:
		return holdBusy
	case errors.Is(err, store.ErrReferenceUsed):
		return holdUsed
	case errors.Is(err, store.ErrNotHoldable):
		return holdEnded
	case errors.Is(err, ErrMerchantNotActive):
		return holdNotActive
	case errors.Is(err, store.ErrExpiresTooSoon):
		return holdTooSoon
	case errors.Is(err, store.ErrHoldTooLong):
		return holdTooLong
	case errors.Is(err, store.ErrNotFound):
		return holdUnknown
	default:
		return holdError
	}
}
