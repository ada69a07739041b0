package console

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

// errSecretUnavailable means that a new signing secret could not be shown now, so nothing was changed.
var errSecretUnavailable = errors.New("no new signing secret could be shown")

// secretNotShownError means that a new signing secret was asked for, that it may be made, and that nobody sees it.
type secretNotShownError struct{ cause error }

// Error is for the log.
func (e *secretNotShownError) Error() string {
	return "show the new signing secret: " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *secretNotShownError) Unwrap() error { return e.cause }

// signingSecretForm asks before the signing secret is replaced.
func (c *console) signingSecretForm(w http.ResponseWriter, r *web.Request) error {
	if r.Merchant.Spec.Webhook == nil {
		return web.ErrNotFound
	}
	return c.renderEditForm(w, r, http.StatusOK, newSecretForm(r))
}

func newSecretForm(r *web.Request) editForm {
	form := newEditForm(r, "signing-secret", audit.ActionRotateSigning)
	form.SafeSecrets = published.MaxRetired
	return form
}

func (c *console) rotateSigningSecret(w http.ResponseWriter, r *web.Request) error {
	if r.Merchant.Spec.Webhook == nil {
		return web.ErrNotFound
	}
	return c.editAndShowSecret(w, r, newSecretForm(r), func(*v1alpha1.Merchant) {})
}

// editAndShowSecret changes a Merchant, which has a webhook then, and makes it a new signing secret, which the answer shows. Only this request
// knows the nonce, so nobody can ask for the secret again: before the change, a request with another nonce finds out whether the API can show it.
func (c *console) editAndShowSecret(w http.ResponseWriter, r *web.Request, form editForm, change func(*v1alpha1.Merchant)) error {
	end, err := c.waits.Begin(r.Viewer.User)
	if err != nil {
		return err
	}
	defer end()
	nonce, unused := rand.Text(), rand.Text()
	if _, err := c.issuer.SigningSecret(r.Context(), r.Merchant, unused, r.Viewer.User); !errors.Is(err, issuer.ErrNotPublished) {
		return errors.Join(errSecretUnavailable, err)
	}
	// The rest of the request's time is to find out whether a change without an answer was made.
	changing, cancel := context.WithTimeout(r.Context(), objects.Timeout)
	defer cancel()
	changed, err := c.change(changing, w, r, form, func(merchant *v1alpha1.Merchant) {
		change(merchant)
		merchant.Spec.Webhook.RotationTrigger = rotation.SigningTrigger(nonce)
	})
	lost := err
	if !objects.MayBeDone(err) && (err != nil || !changed) {
		return err
	}
	shown, err := c.awaitSigningSecret(r.Context(), r.Merchant, nonce, r.Viewer)
	if err != nil {
		return &secretNotShownError{errors.Join(lost, err)}
	}
	if lost != nil { // the secret proves that the change was made
		c.audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: form.action, Object: r.Merchant, ID: published.ID(r.Merchant.UID), Generation: r.Merchant.Generation + 1})
	}
	page := secretPage{Merchant: r.Merchant, Secret: shown.Secret, Clock: c.pages.Clock(r.Merchant)}
	if shown.PreviousValidUntil != nil {
		page.OldUntil = time.UnixMilli(*shown.PreviousValidUntil)
	}
	return c.pages.Render(w, http.StatusOK, "signing-secret-new", r.View(page))
}

// awaitSigningSecret asks for the secret of the nonce until the operator has made it and the API shows it. An API that refuses the console is not
// asked again.
func (c *console) awaitSigningSecret(ctx context.Context, merchant *v1alpha1.Merchant, nonce string, viewer login.Person) (rotation.SigningSecret, error) {
	const interval = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, c.answerTimeout)
	defer cancel()
	for {
		shown, err := c.issuer.SigningSecret(ctx, merchant, nonce, viewer.User)
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
