package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// health is how an endpoint fares, for people. The zero health is that of a merchant without a webhook, of which there
// is nothing to say any more.
type health struct {
	healthy bool
	since   time.Time
	// reason and message are of the condition, and of the event.
	reason, message string
}

// Reasons of the condition WebhookHealthy, and of the events.
const (
	reasonGone    = "EndpointGone"
	reasonFailing = "EndpointFailing"
	reasonResumed = "Resumed"
)

const wayOut = "Events become dead letters until spec.webhook.url or spec.webhook.resumeTrigger is changed."

func healthOf(endpoint endpoints.Endpoint, state store.EndpointState) health {
	switch {
	case endpoint.URL == "":
		return health{}
	case !state.Disabled():
		return health{true, state.ResumedAt, reasonResumed, "Events are sent to the endpoint again."}
	case state.Cause == store.EndpointGone:
		return health{false, state.DisabledAt, reasonGone, "The endpoint answered 410 Gone. " + wayOut}
	}
	return health{false, state.DisabledAt, reasonFailing,
		"Every attempt to deliver an event has failed since " + state.FailingSince.Format(time.RFC3339) + ". " + wayOut}
}

// errNoMerchant says that the Merchant whose endpoint it is has gone, so that nobody is to be told.
var errNoMerchant = errors.New("the Merchant is gone")

// reportHealth passes on which endpoints are disabled, and starts those again that have another target now. What it
// cannot pass on it passes on later, or another dispatcher does: Redis remembers what has been said.
func (d *dispatcher) reportHealth(ctx context.Context) (more bool, err error) {
	outlooks, err := d.store.Look(ctx)
	if err := d.partly(ctx, err, outlooks); err != nil {
		return false, err
	}
	for _, outlook := range outlooks {
		if !outlook.Troubled {
			continue
		}
		states, err := d.store.TroubledEndpoints(ctx, outlook.Bucket)
		if err != nil {
			return false, err
		}
		for _, state := range states {
			resumed, err := d.settle(ctx, state)
			if err != nil {
				return false, err
			}
			more = more || resumed
		}
	}
	return more, nil
}

// settle does what there is to do about one endpoint, and reports whether that makes news. A webhook that was removed
// has another target as well: none. The error is of the store.
func (d *dispatcher) settle(ctx context.Context, state store.EndpointState) (resumed bool, err error) {
	endpoint := d.index.Endpoint(state.MerchantID)
	known := endpoint.State == endpoints.Published
	switch {
	case endpoint.State == endpoints.Undecodable:
		return false, nil
	case known && state.Disabled() && state.Target != endpoint.Target:
		return d.store.ResumeEndpoint(ctx, state.MerchantID, endpoint.Target)
	case state.Disabled() && state.Told, known && endpoint.UID == "":
		return false, nil
	case known:
		if !d.report(ctx, endpoint, healthOf(endpoint, state)) {
			return false, nil
		}
	case state.Disabled():
		return false, nil // nobody knows the merchant, perhaps not yet
	}
	return false, d.store.EndpointTold(ctx, state)
}

// report passes on how an endpoint fares, and reports whether that is done with.
func (d *dispatcher) report(ctx context.Context, endpoint endpoints.Endpoint, h health) bool {
	err := d.reporter.Report(ctx, endpoint, h)
	switch {
	case err == nil:
		d.options.Log.Info("passed on how an endpoint fares", "merchant", endpoint.Merchant.String(), "reason", h.reason)
	case errors.Is(err, errNoMerchant):
	case ctx.Err() != nil:
		return false
	default:
		d.options.Log.Error("could not pass on how an endpoint fares; trying again", "merchant", endpoint.Merchant.String(), "error", err)
		return false
	}
	return true
}
