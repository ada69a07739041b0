package console

import (
	"context"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/edit"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// webhookHealth is how the endpoint of a Merchant is. All of it is read from Redis, so that a person sees what they have just done.
type webhookHealth struct {
	outbox.EndpointState

	Badge          string
	Works, Failing bool // neither: nobody knows yet
	Message        template.HTML
}

// readHealth returns the health of the endpoint. The error is redis.ErrUnavailable or redis.ErrCorrupt.
func (c *console) readHealth(ctx context.Context, merchant *v1alpha1.Merchant) (webhookHealth, error) {
	id := published.ID(merchant.UID)
	endpoints, err := c.outbox.Endpoints(ctx, session.MerchantBucket(id), id)
	if err != nil {
		return webhookHealth{}, err
	}
	state := outbox.EndpointState{MerchantID: id}
	if len(endpoints.States) == 1 {
		state = endpoints.States[0]
	}
	return newWebhookHealth(c.pages.Clock(merchant), state)
}

func newWebhookHealth(clock web.Clock, state outbox.EndpointState) (webhookHealth, error) {
	at, w := state.FailingSince, clock.Words
	if state.Disabled() {
		at = state.DisabledAt
	}
	on, err := clock.On(at)
	if err != nil {
		return webhookHealth{}, err
	}
	failing := !state.FailingSince.IsZero()
	health := webhookHealth{EndpointState: state, Badge: "webhook.untried", Message: w.HTML("webhook.untried.message")}
	switch {
	case state.Disabled() && state.Cause == outbox.EndpointGone:
		health.Badge, health.Failing, health.Message = "webhook.disabled", true, w.HTML("webhook.gone", on)
	case state.Disabled():
		health.Badge, health.Failing, health.Message = "webhook.disabled", true, w.HTML("webhook.disabled.message", on, failureWords(w, state.LastFailure))
	case !failing && state.Unhealthy(clock.Now): // nothing was tried
		health.Badge, health.Failing, health.Message = "webhook.failing", true, w.HTML("webhook.refused.message", failureWords(w, state.LastFailure))
	case state.Unhealthy(clock.Now):
		health.Badge, health.Failing, health.Message = "webhook.failing", true, w.HTML("webhook.failing.message", failureWords(w, state.LastFailure), on)
	case !state.HealthySince.IsZero():
		health.Badge, health.Works, health.Message = "webhook.works", true, w.HTML("webhook.works.message")
	case failing:
		health.Badge, health.Message = "webhook.retrying", w.HTML("webhook.retrying.message", failureWords(w, state.LastFailure))
	case !state.ChangedAt.IsZero():
		health.Message = w.HTML("webhook.changed")
	}
	return health, nil
}

// failureWords say why an attempt failed.
func failureWords(w web.Words, failure outbox.AttemptFailure) template.HTML {
	key := "failure." + failure.Reason
	if !w.Known(key) {
		key = "failure.DeliveryFailed"
	}
	return w.HTML(key, failure.Answer)
}

// webhookForm is the form of the webhook.
type webhookForm struct {
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

func (c *console) renderWebhookForm(w http.ResponseWriter, r *web.Request, status int, form webhookForm) error {
	return c.pages.Render(w, status, "webhook", r.View(form))
}

func (c *console) showWebhookForm(w http.ResponseWriter, r *web.Request) error {
	form := webhookForm{Form: edit.NewForm(r)}
	var chosen []v1alpha1.WebhookEvent
	if webhook := r.Merchant.Spec.Webhook; webhook != nil {
		form.URL, chosen = webhook.URL, webhook.Events
	}
	form.choose(chosen)
	var err error
	if form.Waiting, err = c.waitingEvents(r.Context(), r.Merchant); err != nil {
		return err
	}
	return c.renderWebhookForm(w, r, http.StatusOK, form)
}

// waitingEvents returns how many events wait for delivery to the webhook; 0 without one. Errors are those of readHealth.
func (c *console) waitingEvents(ctx context.Context, merchant *v1alpha1.Merchant) (int64, error) {
	if merchant.Spec.Webhook == nil {
		return 0, nil
	}
	health, err := c.readHealth(ctx, merchant)
	return health.Pending, err
}

func (f *webhookForm) choose(chosen []v1alpha1.WebhookEvent) {
	for _, kind := range v1alpha1.WebhookEvents() {
		f.Events = append(f.Events, eventChoice{kind, slices.Contains(chosen, kind)})
	}
}

func (c *console) editWebhook(w http.ResponseWriter, r *web.Request) error {
	form := webhookForm{Form: edit.NewForm(r)}
	form.URL = strings.TrimSpace(r.PostFormValue("url"))
	var chosen []v1alpha1.WebhookEvent
	for _, kind := range v1alpha1.WebhookEvents() {
		if slices.Contains(r.PostForm["events"], string(kind)) {
			chosen = append(chosen, kind)
		}
	}
	form.choose(chosen)
	var err error
	if form.Waiting, err = c.waitingEvents(r.Context(), r.Merchant); err != nil {
		return err
	}
	if form.Removing = form.URL == "" && form.Waiting > 0 && r.PostFormValue("confirmed") == ""; form.Removing {
		return c.renderWebhookForm(w, r, http.StatusUnprocessableEntity, form)
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
	showAgain := func() error { return c.renderWebhookForm(w, r, http.StatusUnprocessableEntity, form) }
	if r.Merchant.Spec.Webhook == nil && form.URL != "" { // nobody here has its secret
		return c.editAndShowSecret(w, r, secretEdit{&form.Form, audit.ActionEditWebhook, change, showAgain})
	}
	done, err := c.editor.Change(r.Context(), r, &form.Form, audit.ActionEditWebhook, change)
	switch {
	case err != nil:
		return err
	case !done:
		return showAgain()
	}
	return r.LeadTo(w, "#webhook")
}

// resumeWebhook enables a disabled endpoint. It changes no spec, so it works for Merchants that Git manages too.
func (c *console) resumeWebhook(w http.ResponseWriter, r *web.Request) error {
	_, err := c.outbox.ResumeEndpoint(r.Context(), published.ID(r.Merchant.UID), outbox.Target{})
	c.audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionResumeWebhook, Object: r.Merchant, ID: published.ID(r.Merchant.UID), Generation: r.Merchant.Generation, Err: err})
	if err != nil {
		return err
	}
	return r.LeadTo(w, "#webhook")
}
