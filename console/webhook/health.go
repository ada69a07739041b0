package webhook

import (
	"context"
	"html/template"

	"golang.org/x/sync/errgroup"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Health is how the endpoint of a Merchant is. All of it is read from Redis, so that a person sees what they have just done.
type Health struct {
	outbox.EndpointState

	Badge string
	// Retrying: the last attempt failed, and nobody knows yet whether that lasts. None of the three: nothing was sent yet.
	Works, Retrying, Failing bool
	Message                  template.HTML
}

// ReadHealth returns the health of the endpoint. The error is redis.ErrUnavailable or redis.ErrCorrupt.
func (h *Handler) ReadHealth(ctx context.Context, merchant *v1alpha1.Merchant) (Health, error) {
	id := published.ID(merchant.UID)
	endpoints, err := h.Outbox.Endpoints(ctx, session.MerchantBucket(id), id)
	if err != nil {
		return Health{}, err
	}
	state := outbox.EndpointState{MerchantID: id}
	if len(endpoints.States) == 1 {
		state = endpoints.States[0]
	}
	return NewHealth(h.Pages.Clock(ctx, merchant), state)
}

// NewHealth returns the health of an endpoint with the state.
func NewHealth(clock web.Clock, state outbox.EndpointState) (Health, error) {
	at, w := state.FailingSince, clock.Words
	if state.Disabled() {
		at = state.DisabledAt
	}
	on, err := clock.On(at)
	if err != nil {
		return Health{}, err
	}
	failing := !state.FailingSince.IsZero()
	health := Health{EndpointState: state, Badge: "webhook.untried", Message: w.HTML("webhook.untried.message")}
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
		health.Badge, health.Retrying, health.Message = "webhook.retrying", true, w.HTML("webhook.retrying.message", failureWords(w, state.LastFailure))
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

// ReadStates returns the states of the endpoints of Merchants by merchant id, with one read for each bucket. Errors are the errors of ReadHealth.
func (h *Handler) ReadStates(ctx context.Context, merchants []*v1alpha1.Merchant) (map[string]outbox.EndpointState, error) {
	byBucket := map[session.Bucket][]string{}
	for _, merchant := range merchants {
		id := published.ID(merchant.UID)
		byBucket[session.MerchantBucket(id)] = append(byBucket[session.MerchantBucket(id)], id)
	}
	found := make(chan []outbox.EndpointState, len(byBucket))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(parallelReads)
	for bucket, ids := range byBucket {
		reads.Go(func() error {
			endpoints, err := h.Outbox.Endpoints(ctx, bucket, ids...)
			found <- endpoints.States
			return err
		})
	}
	err := reads.Wait()
	close(found)
	states := map[string]outbox.EndpointState{}
	for some := range found {
		for _, state := range some {
			states[state.MerchantID] = state
		}
	}
	return states, err
}

// parallelReads bounds the buckets that one page reads at once.
const parallelReads = 16
