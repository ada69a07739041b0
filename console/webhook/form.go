package webhook

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/edit"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// endpointForm is the form of the URL and the events.
type endpointForm struct {
	edit.Form

	URL    string
	Events []eventChoice
	// Waiting is how many events wait for delivery to the webhook.
	Waiting int64
	// Removing: the form removes the URL, and that was not confirmed.
	Removing bool
}

type eventChoice struct {
	Kind   v1alpha1.WebhookEvent
	Chosen bool
}

func (h *Handler) renderForm(w http.ResponseWriter, r *web.Request, status int, form endpointForm) error {
	return h.Pages.Render(w, r.Request, status, "webhook", r.View(form))
}

// ShowForm shows the form of the URL and the events.
func (h *Handler) ShowForm(w http.ResponseWriter, r *web.Request) error {
	form := endpointForm{Form: edit.NewForm(r)}
	var chosen []v1alpha1.WebhookEvent
	if webhook := r.Merchant.Spec.Webhook; webhook != nil {
		form.URL, chosen = webhook.URL, webhook.Events
	}
	form.choose(chosen)
	var err error
	if form.Waiting, err = h.waitingEvents(r.Context(), r.Merchant); err != nil {
		return err
	}
	return h.renderForm(w, r, http.StatusOK, form)
}

// waitingEvents returns how many events wait for delivery to the webhook; 0 without one. It also returns the errors of ReadHealth.
func (h *Handler) waitingEvents(ctx context.Context, merchant *v1alpha1.Merchant) (int64, error) {
	if merchant.Spec.Webhook == nil {
		return 0, nil
	}
	health, err := h.ReadHealth(ctx, merchant)
	return health.Pending, err
}

func (f *endpointForm) choose(chosen []v1alpha1.WebhookEvent) {
	for _, kind := range v1alpha1.WebhookEvents() {
		f.Events = append(f.Events, eventChoice{kind, slices.Contains(chosen, kind)})
	}
}

// Edit changes the URL and the events. A URL for a Merchant without one makes a signing secret, which the answer shows.
func (h *Handler) Edit(w http.ResponseWriter, r *web.Request) error {
	form := endpointForm{Form: edit.NewForm(r)}
	form.URL = strings.TrimSpace(r.PostFormValue("url"))
	var chosen []v1alpha1.WebhookEvent
	for _, kind := range v1alpha1.WebhookEvents() {
		if slices.Contains(r.PostForm["events"], string(kind)) {
			chosen = append(chosen, kind)
		}
	}
	form.choose(chosen)
	var err error
	if form.Waiting, err = h.waitingEvents(r.Context(), r.Merchant); err != nil {
		return err
	}
	if form.Removing = form.URL == "" && form.Waiting > 0 && r.PostFormValue("confirmed") == ""; form.Removing {
		return h.renderForm(w, r, http.StatusUnprocessableEntity, form)
	}
	change := func(changed *v1alpha1.Merchant) {
		if form.URL == "" {
			changed.Spec.Webhook = nil
			return
		}
		if changed.Spec.Webhook == nil {
			changed.Spec.Webhook = &v1alpha1.Webhook{}
		}
		changed.Spec.Webhook.URL, changed.Spec.Webhook.Events = form.URL, chosen
	}
	showAgain := func() error { return h.renderForm(w, r, http.StatusUnprocessableEntity, form) }
	if r.Merchant.Spec.Webhook == nil && form.URL != "" { // nobody here has its secret
		return h.editAndShowSecret(w, r, secretEdit{&form.Form, audit.ActionEditWebhook, change, showAgain})
	}
	done, err := h.Editor.Change(r.Context(), r, &form.Form, audit.ActionEditWebhook, change)
	switch {
	case err != nil:
		return err
	case !done:
		return showAgain()
	}
	return r.LeadTo(w, "#webhook")
}

// Resume enables a disabled endpoint. It changes no spec, so it works for Merchants that Git manages too.
func (h *Handler) Resume(w http.ResponseWriter, r *web.Request) error {
	_, err := h.Outbox.ResumeEndpoint(r.Context(), published.ID(r.Merchant.UID), outbox.Target{})
	h.Audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionResumeWebhook, Object: r.Merchant, ID: published.ID(r.Merchant.UID), Generation: r.Merchant.Generation, Err: err})
	if err != nil {
		return err
	}
	return r.LeadTo(w, "#webhook")
}
