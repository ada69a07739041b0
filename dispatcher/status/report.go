package status

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// The budget of this dispatcher for reports to Merchants, which etcd stores. It does not depend on traffic.
const (
	// changesPerRound bounds the reports of changed health in a round of healthInterval, and
	// countsPerRound those of them where only counts changed, so that they leave room for changed
	// health.
	changesPerRound = 20
	countsPerRound  = changesPerRound / 2
	// refreshInterval is how often times and counts of one bucket are refreshed, refreshAge the least age of a report that is,
	// and refreshesPerRound how many of health and how many of blocked addresses at most, the oldest first.
	refreshAge        = 10 * time.Minute
	refreshInterval   = refreshAge / session.Buckets
	refreshesPerRound = 10
)

// reportBudget is how many reports a round may still make, and how many of them where only counts changed.
type reportBudget struct{ left, counts int }

// allows reports whether another report may be made; countsOnly: its reason is that of the last one.
func (b *reportBudget) allows(countsOnly bool) bool {
	return b.left > 0 && (!countsOnly || b.counts > 0)
}

// spend takes a report from the budget.
func (b *reportBudget) spend(countsOnly bool) {
	b.left--
	if countsOnly {
		b.counts--
	}
}

// Report is what a Merchant's status says of its endpoint.
type Report struct {
	Health
	State outbox.EndpointState
	// EventType is that of the event beside it; empty: none.
	EventType string
}

// ErrMerchantGone says that the Merchant of an endpoint does not exist any more.
var ErrMerchantGone = errors.New("the Merchant is gone")

// reportHealth reports changed health, then changed blocked addresses, and resumes endpoints with a new target. A failed report is repeated later, by
// this dispatcher or another one: Redis stores what has been reported. Namespaces take turns, so that none takes the budget of others.
func (r *Reporter) reportHealth(ctx context.Context) (more bool, err error) {
	pending, err := loop.Pending(ctx, r.outbox.PendingReports, r.log)
	if err != nil {
		return false, err
	}
	r.retries.forget(r.now())
	changes, err := r.findChanges(ctx, pending)
	if err != nil {
		return false, err
	}
	budget := &reportBudget{left: changesPerRound, counts: countsPerRound}
	namespace := func(change healthChange) string { return change.endpoint.Merchant.Namespace }
	for _, change := range loop.InTurn(changes, namespace, r.lastReported) {
		if !budget.allows(change.countsOnly()) || !r.retries.due(change.endpoint, r.now()) {
			continue
		}
		r.lastReported = change.endpoint.Merchant.Namespace
		if err := r.report(ctx, change, budget); err != nil {
			return false, err
		}
	}
	return false, r.reportBlocked(ctx, pending)
}

// findChanges returns the changed health of the endpoints in these buckets, and counts the unhealthy ones for the metrics. The error is of Redis.
func (r *Reporter) findChanges(ctx context.Context, pending []outbox.PendingReports) (changes []healthChange, err error) {
	unhealthy := map[string]int{}
	for _, work := range pending {
		if !work.Endpoints {
			continue
		}
		found, err := r.outbox.WatchedEndpoints(ctx, work.Bucket)
		if err != nil {
			return nil, err
		}
		for _, state := range found.States {
			change, due, err := r.findChange(ctx, state, found.Now)
			if err != nil {
				return nil, err
			}
			if change.health.Status == metav1.ConditionFalse {
				unhealthy[change.health.Reason]++
			}
			if due {
				changes = append(changes, change)
			}
		}
	}
	r.metrics.set(unhealthy)
	return changes, nil
}

// healthChange is health to report. The last report said something else, or it is due again.
type healthChange struct {
	endpoint endpoints.Endpoint
	health   Health
	state    outbox.EndpointState
}

// countsOnly reports whether the reason is that of the last report.
func (c *healthChange) countsOnly() bool {
	return c.health.Reason == c.state.Reported.Reason && c.endpoint.URL != ""
}

// beginningAt returns the buckets in turn, beginning with this one.
func beginningAt(bucket session.Bucket, pending []outbox.PendingReports) []outbox.PendingReports {
	first := slices.IndexFunc(pending, func(work outbox.PendingReports) bool { return work.Bucket >= bucket })
	first = max(first, 0)
	return slices.Concat(pending[first:], pending[:first])
}

// findChange returns the health of an endpoint. due: it is to be reported, because it is not what was reported last, or its counts fell to 0 or rose
// from it. The error is of Redis.
func (r *Reporter) findChange(ctx context.Context, state outbox.EndpointState, now time.Time) (change healthChange, due bool, err error) {
	age := r.index.Age() // read first: the endpoint is not older
	change = healthChange{endpoint: r.index.Endpoint(state.MerchantID), state: state}
	endpoint := change.endpoint
	switch {
	case state.Target == "": // there is nothing to report of it
		return change, false, r.outbox.UnwatchEndpoint(ctx, state)
	case endpoint.State == endpoints.Withdrawn:
		return change, false, r.outbox.ForgetEndpoint(ctx, state.MerchantID)
	case endpoint.State != endpoints.Published || endpoint.UID == "":
		return change, false, nil // perhaps not published yet
	case state.Outdates(endpoint.Noted(age), now):
		return change, false, nil // another dispatcher knows what the webhook is by now
	case age > endpoints.MaxAge && state.Target != endpoint.Target:
		return change, false, nil // others know what the webhook is by now, and it may be disabled there
	case endpoint.URL != "" && state.Target != endpoint.Target:
		resumed, err := r.outbox.ResumeEndpoint(ctx, state.MerchantID, endpoint.Noted(age))
		if resumed {
			r.healthChanged.Set()
		}
		return change, false, err
	}
	if r.refusalEnded(endpoint, state, now) {
		ended, err := r.outbox.EndRefusal(ctx, state)
		if ended {
			r.healthChanged.Set()
		}
		return change, false, err
	}
	change.health = newHealth(endpoint, state, now)
	switch {
	case change.countsOnly() && !state.CountsChanged():
		if change.health.healthy() && state.Reported.Pending == 0 {
			return change, false, r.outbox.UnwatchEndpoint(ctx, state)
		}
		return change, false, nil
	case change.countsOnly() && change.health.Reason == "", !state.MayReportChange(now):
		return change, false, nil
	}
	return change, true, nil
}

// refreshHealth reports times and counts of one bucket again that have changed, of endpoints and then of blocked addresses.
func (r *Reporter) refreshHealth(ctx context.Context) (more bool, err error) {
	bucket := r.nextRefresh
	r.nextRefresh = (bucket + 1) % session.Buckets
	found, err := r.outbox.Endpoints(ctx, bucket, r.index.MerchantIDs(bucket)...)
	if err != nil {
		return false, err
	}
	slices.SortFunc(found.States, func(a, b outbox.EndpointState) int { return a.Reported.At.Compare(b.Reported.At) })
	budget := &reportBudget{left: refreshesPerRound}
	for _, state := range found.States {
		endpoint := r.index.Endpoint(state.MerchantID)
		h := newHealth(endpoint, state, found.Now)
		if budget.left == 0 || h.Reason == "" || h.Reason != state.Reported.Reason || !outdated(state, found.Now) || !r.retries.due(endpoint, r.now()) {
			continue // a changed reason is for reportHealth
		}
		if err := r.report(ctx, healthChange{endpoint, h, state}, budget); err != nil {
			return false, err
		}
	}
	return false, r.refreshBlocked(ctx, bucket)
}

func outdated(state outbox.EndpointState, now time.Time) bool {
	last := state.Reported
	return now.Sub(last.At) >= refreshAge && (state.LastDelivery.After(last.At) || state.LastFailure.Time.After(last.At) ||
		state.Pending != last.Pending || state.Dead != last.Dead)
}

// report writes the health of an endpoint into its Merchant's status, and remembers that. The error is of Redis.
func (r *Reporter) report(ctx context.Context, change healthChange, budget *reportBudget) error {
	h, state := change.health, change.state
	if h.Reason != "" || state.Reported.Reason != "" {
		budget.spend(h.Reason == state.Reported.Reason)
		if !r.updateStatus(ctx, change) {
			return nil
		}
	}
	if change.endpoint.URL == "" {
		return r.outbox.ForgetEndpoint(ctx, state.MerchantID)
	}
	return r.outbox.RecordEndpointReport(ctx, state, h.Reason, h.healthy())
}

// updateStatus reports whether the report needs no repetition.
func (r *Reporter) updateStatus(ctx context.Context, change healthChange) bool {
	endpoint, h, state := change.endpoint, change.health, change.state
	done, err := r.write(ctx, endpoint, func() error { return r.writer.Report(ctx, endpoint, Report{h, state, h.eventType(state)}) })
	switch {
	case errors.Is(err, ErrMerchantGone), ctx.Err() != nil:
	case err != nil:
		r.log.Error("could not update webhook health; retrying", "merchant", endpoint.Merchant.String(), "error", err)
	case h.Reason != state.Reported.Reason:
		r.logHealth(endpoint, h, state)
	}
	return done
}

// write writes into the status of the Merchant of an endpoint, and notes how that ended. done: it needs no repetition.
func (r *Reporter) write(ctx context.Context, endpoint endpoints.Endpoint, report func() error) (done bool, err error) {
	began := r.now()
	err = report()
	ended := r.now()
	return r.retries.note(ctx, endpoint, ended, ended.Sub(began), err), err
}

func (r *Reporter) logHealth(endpoint endpoints.Endpoint, h Health, state outbox.EndpointState) {
	log := r.log.With("merchant", endpoint.Merchant.String())
	switch h.Status {
	case metav1.ConditionFalse:
		log.Warn("webhook is unhealthy", "reason", h.Reason, "answer", state.LastFailure.Answer)
	case metav1.ConditionTrue:
		log.Info("webhook is healthy")
	default:
		log.Info("webhook health is unknown", "reason", h.Reason)
	}
}
