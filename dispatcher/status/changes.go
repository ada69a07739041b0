package status

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Changes are the merchants whose endpoint was changed, is refused, or is to be tested. Every dispatcher sees each, and what it does
// about it may be repeated.
type Changes struct {
	added loop.Signal

	mu      sync.Mutex
	pending map[string]bool // by merchant id
}

// NewChanges returns no Changes.
func NewChanges() *Changes {
	return &Changes{added: loop.NewSignal(), pending: map[string]bool{}}
}

// Add does not wait for Redis, because a watch calls it.
func (c *Changes) Add(merchantID string) {
	c.keep(merchantID)
	c.added.Set()
}

// keep keeps a merchant for the next round. Unlike Add it does not start one: what fails would be done again without a pause.
func (c *Changes) keep(merchantID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[merchantID] = true
}

// take returns the merchants and forgets them.
func (c *Changes) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := slices.Collect(maps.Keys(c.pending))
	clear(c.pending)
	return taken
}

// changesPerTurn bounds how many changes are handled before those that came meanwhile have their turn.
const changesPerTurn = 100

// handleChanges sends the tests and reports the changes that it has seen. What fails is done again later. Namespaces take turns, so that one with many
// changes delays no other.
func (r *Reporter) handleChanges(ctx context.Context) (more bool, err error) {
	var failures []error
	left := changesPerTurn
	namespace := func(merchantID string) string { return r.index.Endpoint(merchantID).Merchant.Namespace }
	for _, merchantID := range loop.InTurn(r.changes.take(), namespace, r.lastChanged) {
		due := r.retries.due(r.index.Endpoint(merchantID), r.now())
		if !due || left == 0 {
			more = more || due
			r.changes.keep(merchantID)
			continue
		}
		left--
		r.lastChanged = namespace(merchantID)
		if err := r.handleChange(ctx, merchantID); err != nil {
			failures = append(failures, err)
			r.changes.keep(merchantID)
		}
	}
	return more, errors.Join(failures...)
}

func (r *Reporter) handleChange(ctx context.Context, merchantID string) error {
	age := r.index.Age() // read first: the endpoint is not older
	endpoint := r.index.Endpoint(merchantID)
	if endpoint.TestTrigger != "" {
		if err := r.sendTest(ctx, endpoint); err != nil {
			return err
		}
	}
	if refused, err := r.recordRefusal(ctx, endpoint, age); err != nil || refused {
		return err
	}
	found, err := r.outbox.Endpoints(ctx, session.MerchantBucket(merchantID), merchantID)
	if err != nil {
		return err
	}
	for _, state := range found.States {
		if state.Target == "" && endpoint.URL != "" { // a dispatcher that hears of the change later may try the former URL, which is gone
			_, err = r.outbox.ResumeEndpoint(ctx, merchantID, endpoint.Noted(age))
		} else {
			err = r.reportChange(ctx, state, found.Now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reportChange reports the health of an endpoint, if that has changed and may be reported now.
func (r *Reporter) reportChange(ctx context.Context, state outbox.EndpointState, now time.Time) error {
	change, due, err := r.findChange(ctx, state, now)
	if err != nil || !due || change.countsOnly() || !r.retries.due(change.endpoint, r.now()) {
		return err
	}
	return r.report(ctx, change, &reportBudget{left: 1})
}

// recordRefusal reports whether nothing can be sent to an endpoint, and notes it at once: the first event may come in weeks, and be lost. The report
// is left to reportHealth, which has a budget: after a change of the rules a start may find thousands.
func (r *Reporter) recordRefusal(ctx context.Context, endpoint endpoints.Endpoint, age time.Duration) (refused bool, err error) {
	if endpoint.URL == "" {
		return false, nil
	}
	result, refused := r.refusal(endpoint.URL)
	if !refused {
		return false, nil
	}
	reason, _ := FailureReason(result)
	recorded, err := r.outbox.RecordRefusal(ctx, endpoint.MerchantID, endpoint.Noted(age), reason, result.Answer())
	if recorded {
		r.healthChanged.Set()
	}
	return true, err
}

// refusalEnded reports whether an endpoint was refused by a rule that the platform has changed since. The dispatcher that started last
// has the newer rules, so each dispatcher decides only about refusals from before its own start. now is the time of Redis.
func (r *Reporter) refusalEnded(endpoint endpoints.Endpoint, state outbox.EndpointState, now time.Time) bool {
	started := now.Add(-r.now().Sub(r.started))
	if state.RefusedSince.IsZero() || state.Disabled() || !state.RefusedSince.Before(started) {
		return false
	}
	_, refused := r.refusal(endpoint.URL)
	return !refused
}

// sendTest queues the event of a test once, and notes it in the status of the Merchant. Then the operator publishes the trigger no
// more, so that not even a dispatcher with another Redis repeats it. The error is of Redis.
func (r *Reporter) sendTest(ctx context.Context, endpoint endpoints.Endpoint) error {
	event := feed.NewWebhookTest(endpoint.MerchantID, endpoint.MerchantName, endpoint.TestTrigger, r.now())
	recorded, err := r.outbox.RecordTest(ctx, event)
	if errors.Is(err, redis.ErrUnavailable) {
		return err
	}
	if err != nil {
		r.log.Error("could not queue the test of a webhook", "merchant", endpoint.Merchant.String(), "error", err)
		return nil
	}
	if recorded {
		r.log.Info("queued the test of a webhook", "merchant", endpoint.Merchant.String(), "event", feed.HashID(event.ID))
	}
	if endpoint.UID == "" {
		return nil
	}
	done, err := r.write(ctx, endpoint, func() error { return r.writer.ReportTest(ctx, endpoint) })
	if !done && ctx.Err() == nil {
		r.log.Error("could not note the test of a webhook in its status; retrying", "merchant", endpoint.Merchant.String(), "error", err)
		r.changes.keep(endpoint.MerchantID)
	}
	return nil
}
