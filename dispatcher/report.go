package dispatcher

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// The budget of this dispatcher for reports to Merchants, which etcd stores. It does not depend on traffic.
const (
	// changesPerRound bounds the reports of changes in a round of healthInterval, and countsPerRound those of them where only counts
	// changed, so that they leave room for changed health.
	changesPerRound = 20
	countsPerRound  = changesPerRound / 2
	// refreshInterval is how often times and counts of one bucket are refreshed, refreshAge the least age of a report that is,
	// and refreshesPerRound how many at most, the oldest first.
	refreshAge        = 10 * time.Minute
	refreshInterval   = refreshAge / session.Buckets
	refreshesPerRound = 10
)

// reportBudget is how many reports a round may still make, and how many of them where only counts changed. short: one more was due.
type reportBudget struct {
	left, counts int
	short        bool
}

// allows reports whether another report may be made; countsOnly: its reason is that of the last one.
func (b *reportBudget) allows(countsOnly bool) bool {
	ok := b.left > 0 && (!countsOnly || b.counts > 0)
	b.short = b.short || !ok
	return ok
}

// spend takes a report from the budget.
func (b *reportBudget) spend(countsOnly bool) {
	b.left--
	if countsOnly {
		b.counts--
	}
}

// report is what a Merchant's status says of its endpoint.
type report struct {
	health
	state outbox.EndpointState
	// eventType is that of the event beside it; empty: none.
	eventType string
}

// errMerchantGone says that the Merchant of an endpoint does not exist any more.
var errMerchantGone = errors.New("the Merchant is gone")

// reportHealth reports changed health, then changed blocked addresses, and resumes endpoints with a new target. A failed report is repeated later, by
// this dispatcher or another one: Redis stores what has been reported.
func (d *dispatcher) reportHealth(ctx context.Context) (more bool, err error) {
	pending, err := d.pendingWork(ctx)
	if err != nil {
		return false, err
	}
	budget, unhealthy := &reportBudget{left: changesPerRound, counts: countsPerRound}, map[string]int{}
	for _, work := range beginningAt(d.nextReport, pending) {
		if !work.Endpoints {
			continue
		}
		found, err := d.outbox.WatchedEndpoints(ctx, work.Bucket)
		if err != nil {
			return false, err
		}
		for _, state := range found.States {
			made, err := d.reportChange(ctx, state, found.Now, budget)
			if err != nil {
				return false, err
			}
			if made.status == metav1.ConditionFalse {
				unhealthy[made.reason]++
			}
		}
		if !budget.short {
			d.nextReport = work.Bucket + 1 // else it begins here the next time
		}
	}
	d.metrics.unhealthy(unhealthy)
	return false, d.reportBlocked(ctx, pending, budget)
}

// beginningAt returns the buckets in turn, beginning with this one.
func beginningAt(bucket session.Bucket, pending []outbox.PendingWork) []outbox.PendingWork {
	first := slices.IndexFunc(pending, func(work outbox.PendingWork) bool { return work.Bucket >= bucket })
	first = max(first, 0)
	return slices.Concat(pending[first:], pending[:first])
}

// reportChange reports the health of an endpoint if it is not what was reported last, or its counts fell to 0 or rose from it, and
// returns the health. The error is of Redis.
func (d *dispatcher) reportChange(ctx context.Context, state outbox.EndpointState, now time.Time, budget *reportBudget) (health, error) {
	endpoint := d.index.Endpoint(state.MerchantID)
	switch {
	case state.Target == "": // there is nothing to report of it
		return health{}, d.outbox.UnwatchEndpoint(ctx, state)
	case endpoint.State == endpoints.Withdrawn:
		return health{}, d.outbox.ForgetEndpoint(ctx, state.MerchantID)
	case endpoint.State != endpoints.Published || endpoint.UID == "":
		return health{}, nil // perhaps not published yet
	case endpoint.URL != "" && state.Target != "" && state.Target != endpoint.Target:
		if _, err := d.outbox.ResumeEndpoint(ctx, state.MerchantID, endpoint.Target); err != nil {
			return health{}, err
		}
		d.healthChanged.Set()
		return health{}, nil
	}
	h := healthOf(endpoint, state, now)
	countsOnly := h.reason == state.Reported.Reason && endpoint.URL != ""
	switch {
	case countsOnly && !state.CountsChanged():
		if h.healthy() && state.Reported.Pending == 0 {
			return h, d.outbox.UnwatchEndpoint(ctx, state)
		}
		return h, nil
	case countsOnly && h.reason == "", !state.MayReportChange(now), !budget.allows(countsOnly):
		return h, nil
	}
	return h, d.report(ctx, endpoint, h, state, budget)
}

// refreshHealth reports times and counts of one bucket again that have changed, of endpoints and then of blocked addresses.
func (d *dispatcher) refreshHealth(ctx context.Context) (more bool, err error) {
	bucket := d.nextRefresh
	d.nextRefresh = (bucket + 1) % session.Buckets
	found, err := d.outbox.Endpoints(ctx, bucket, d.index.MerchantIDs(bucket)...)
	if err != nil {
		return false, err
	}
	slices.SortFunc(found.States, func(a, b outbox.EndpointState) int { return a.Reported.At.Compare(b.Reported.At) })
	budget := &reportBudget{left: refreshesPerRound}
	for _, state := range found.States {
		endpoint := d.index.Endpoint(state.MerchantID)
		h := healthOf(endpoint, state, found.Now)
		if budget.left == 0 || h.reason == "" || h.reason != state.Reported.Reason || !outdated(state, found.Now) {
			continue // a changed reason is for reportHealth
		}
		if err := d.report(ctx, endpoint, h, state, budget); err != nil {
			return false, err
		}
	}
	return false, d.refreshBlocked(ctx, bucket, budget)
}

func outdated(state outbox.EndpointState, now time.Time) bool {
	last := state.Reported
	return now.Sub(last.At) >= refreshAge && (state.LastDelivery.After(last.At) || state.LastFailure.Time.After(last.At) ||
		state.Pending != last.Pending || state.Dead != last.Dead)
}

// report writes the health of an endpoint into its Merchant's status, and remembers that. The error is of Redis.
func (d *dispatcher) report(ctx context.Context, endpoint endpoints.Endpoint, h health, state outbox.EndpointState, budget *reportBudget) error {
	if h.reason != "" || state.Reported.Reason != "" {
		budget.spend(h.reason == state.Reported.Reason)
		if !d.updateStatus(ctx, endpoint, h, state) {
			return nil
		}
	}
	if endpoint.URL == "" {
		return d.outbox.ForgetEndpoint(ctx, state.MerchantID)
	}
	return d.outbox.EndpointReported(ctx, state, h.reason, h.healthy())
}

// updateStatus reports whether that needs no repetition.
func (d *dispatcher) updateStatus(ctx context.Context, endpoint endpoints.Endpoint, h health, state outbox.EndpointState) bool {
	err := d.reporter.Report(ctx, endpoint, report{h, state, h.eventType(state)})
	switch {
	case errors.Is(err, errMerchantGone):
	case ctx.Err() != nil:
		return false
	case err != nil:
		d.log.Error("could not update webhook health; retrying", "merchant", endpoint.Merchant.String(), "error", err)
		return false
	case h.reason != state.Reported.Reason:
		d.logHealth(endpoint, h, state)
	}
	return true
}

func (d *dispatcher) logHealth(endpoint endpoints.Endpoint, h health, state outbox.EndpointState) {
	log := d.log.With("merchant", endpoint.Merchant.String())
	switch h.status {
	case metav1.ConditionFalse:
		log.Warn("webhook is unhealthy", "reason", h.reason, "answer", state.LastFailure.Answer)
	case metav1.ConditionTrue:
		log.Info("webhook is healthy")
	default:
		log.Info("webhook health is unknown", "reason", h.reason)
	}
}
