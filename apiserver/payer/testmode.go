package payer

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// ErrCrossOrigin means that a page of another origin has sent a form.
var ErrCrossOrigin = errors.New("the form is of another origin")

// testPagePolicy is pagePolicy for the page of a test session with its form.
const testPagePolicy = pageSources + "form-action 'self'; frame-ancestors 'none'"

// maxForm bounds the form of a test session's page, in bytes.
const maxForm = 1 << 10

// PlayRail is what the two buttons of a test session's page do: it pays or declines, as a rail would. It needs no key, for a test session is
// no money, and anyone with its id may see it end. A live session is not found, before anything is read. What it can cost is one read, which
// counts in the limit of the address, and one payment of a session that is pending.
func (h *Handler) PlayRail(e *web.Event, w http.ResponseWriter, r *http.Request) error {
	id, err := publicID(e, r)
	if err != nil {
		return err
	}
	if !id.TestMode() {
		return store.ErrNotFound
	}
	if h.crossOrigin.Check(r) != nil {
		return ErrCrossOrigin
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); errors.Is(err, os.ErrDeadlineExceeded) {
		return web.ErrBodyTimeout
	}
	outcome := session.Status(r.PostForm.Get("outcome"))
	if outcome != session.Completed && outcome != session.Failed {
		return web.RequestError("outcome " + session.OutcomeRule)
	}
	payment, err := h.payment(e, w, r)
	if errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err == nil && payment.Playable() {
		_, _ = h.store.SettleTest(context.WithoutCancel(r.Context()), id, session.NewTestPayment(outcome, payment.AmountCents))
	}
	// Also after an error: the page finds it too, says what is wrong and asks again, which this address cannot.
	http.Redirect(w, r, page.Path(id), http.StatusSeeOther) //nolint:gosec // a parsed id, behind a path of our own
	return nil
}
