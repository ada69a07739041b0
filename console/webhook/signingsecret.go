package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/edit"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/objects"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// secretPage shows a new signing secret, once.
type secretPage struct {
	Merchant *v1alpha1.Merchant
	Secret   string
	OldUntil time.Time // when events are no longer signed with the former secret too; zero: there is none
	Clock    web.Clock
}

// ErrSecretUnavailable means that a new signing secret could not be shown now, so nothing was changed.
var ErrSecretUnavailable = errors.New("no new signing secret could be shown")

// SecretNotShownError means that a new signing secret was asked for, that it may be made, and that nobody sees it.
type SecretNotShownError struct{ cause error }

// Error is for the log.
func (e *SecretNotShownError) Error() string {
	return "show the new signing secret: " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *SecretNotShownError) Unwrap() error { return e.cause }

// secretForm is the form that replaces the signing secret.
type secretForm struct {
	edit.Form

	// SafeSecrets is how many new signing secrets in a row leave the first one valid for its overlap.
	SafeSecrets int
}

func newSecretForm(r *web.Request) secretForm {
	return secretForm{edit.NewForm(r), published.MaxRetired}
}

func (h *Handler) renderSecretForm(w http.ResponseWriter, r *web.Request, status int, form secretForm) error {
	return h.Pages.Render(w, r.Request, status, "signing-secret", r.View(form))
}

// ShowSecretForm asks before the signing secret is replaced.
func (h *Handler) ShowSecretForm(w http.ResponseWriter, r *web.Request) error {
	if r.Merchant.Spec.Webhook == nil {
		return web.ErrNotFound
	}
	return h.renderSecretForm(w, r, http.StatusOK, newSecretForm(r))
}

// RotateSigningSecret makes a new signing secret, which the answer shows.
func (h *Handler) RotateSigningSecret(w http.ResponseWriter, r *web.Request) error {
	if r.Merchant.Spec.Webhook == nil {
		return web.ErrNotFound
	}
	form := newSecretForm(r)
	return h.editAndShowSecret(w, r, secretEdit{
		&form.Form, audit.ActionRotateSigning, func(*v1alpha1.Merchant) {},
		func() error { return h.renderSecretForm(w, r, http.StatusUnprocessableEntity, form) },
	})
}

// placeTimeout is how long a new signing secret waits for a place among the pages that wait.
const placeTimeout = 2 * time.Second

// secretEdit is a change of a Merchant that makes a new signing secret.
type secretEdit struct {
	form   *edit.Form
	action string
	change func(*v1alpha1.Merchant)
	// showAgain shows the form again if it is refused.
	showAgain func() error
}

// editAndShowSecret changes a Merchant, which has a webhook then, and makes it a new signing secret, which the answer shows. Only this request
// knows the nonce, so nobody can ask for the secret again: before the change, a request with another nonce finds out whether the API can show it.
func (h *Handler) editAndShowSecret(w http.ResponseWriter, r *web.Request, wanted secretEdit) error {
	waiting, stop := context.WithTimeout(r.Context(), placeTimeout)
	defer stop()
	end, err := h.Waits.Await(waiting, r.Viewer.User, r.Merchant.Namespace)
	if err != nil {
		return err
	}
	defer end()
	nonce, unused := rand.Text(), rand.Text()
	if _, err := h.Issuer.SigningSecret(r.Context(), r.Merchant, unused, r.Viewer.User); !errors.Is(err, issuer.ErrNotPublished) {
		return errors.Join(ErrSecretUnavailable, err)
	}
	// The rest of the request's time is to find out whether a change without an answer was made.
	changing, cancel := context.WithTimeout(r.Context(), objects.Timeout)
	defer cancel()
	done, err := h.Editor.Change(changing, r, wanted.form, wanted.action, func(merchant *v1alpha1.Merchant) {
		wanted.change(merchant)
		merchant.Spec.Webhook.RotationTrigger = rotation.SigningTrigger(nonce)
	})
	lost := err
	switch {
	case err == nil && !done:
		return wanted.showAgain()
	case err != nil && !objects.MayBeDone(err):
		return err
	}
	shown, err := h.awaitSigningSecret(r.Context(), r.Merchant, nonce, r.Viewer)
	if err != nil {
		return &SecretNotShownError{errors.Join(lost, err)}
	}
	if lost != nil { // the secret proves that the change was made
		h.Audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: wanted.action, Object: r.Merchant, ID: published.ID(r.Merchant.UID), Generation: r.Merchant.Generation + 1})
	}
	page := secretPage{Merchant: r.Merchant, Secret: shown.Secret, Clock: h.Pages.Clock(r.Context(), r.Merchant)}
	if shown.PreviousValidUntil != nil {
		page.OldUntil = time.UnixMilli(*shown.PreviousValidUntil)
	}
	return h.Pages.Render(w, r.Request, http.StatusOK, "signing-secret-new", r.View(page))
}

// awaitSigningSecret asks for the secret of the nonce until the operator has made it and the API shows it. An API that refuses the console is not
// asked again.
func (h *Handler) awaitSigningSecret(ctx context.Context, merchant *v1alpha1.Merchant, nonce string, viewer login.Person) (rotation.SigningSecret, error) {
	const interval = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, h.AnswerTimeout)
	defer cancel()
	for {
		shown, err := h.Issuer.SigningSecret(ctx, merchant, nonce, viewer.User)
		if err == nil || errors.Is(err, issuer.ErrRefused) {
			return shown, err
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return shown, err
		}
	}
}
