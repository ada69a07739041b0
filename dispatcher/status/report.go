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
// this dispatcher or another one: Redis stores what has been reported.
func (r *Reporter) reportHealth(ctx context.Context) (more bool, err error) {
	pending, err := loop.Pending(ctx, r.outbox.PendingReports, r.log)
	if err != nil {
		return false, err
	}
	r.retries.forget()
	budget, unhealthy := &reportBudget{left: changesPerRound, counts: countsPerRound}, map[string]int{}
	for _, work := range beginningAt(r.nextReport, pending) {
		if !work.Endpoints {
			continue
		}
		found, err := r.outbox.WatchedEndpoints(ctx, work.Bucket)
		if err != nil {
			return false, err
		}
		for _, state := range found.States {
			health, err := r.reportChange(ctx, state, found.Now, budget)
			if err != nil {
				return false, err
			}
			if health.Status == metav1.ConditionFalse {
				unhealthy[health.Reason]++
			}
		}
		if !budget.short {
			r.nextReport = work.Bucket + 1 // else it begins here the next time
		}
	}
	r.metrics.set(unhealthy)
	return false, r.reportBlocked(ctx, pending, budget)
}

// beginningAt returns the buckets in turn, beginning with this one.
func beginningAt(bucket session.Bucket, pending []outbox.PendingReports) []outbox.PendingReports {
	first := slices.IndexFunc(pending, func(work outbox.PendingReports) bool { return work.Bucket >= bucket })
	first = max(first, 0)
	return slices.Concat(pending[first:], pending[:first])
}

// reportChange reports the health of an endpoint if it is not what was reported last, or its counts fell to 0 or rose from it, and
// returns the health. The error is of Redis.
func (r *Reporter) reportChange(ctx context.Context, state outbox.EndpointState, now time.Time, budget *reportBudget) (Health, error) {
	age := r.index.Age() // read first: the endpoint is not older
	endpoint := r.index.Endpoint(state.MerchantID)
	switch {
	case state.Target == "": // there is nothing to report of it
		return Health{}, r.outbox.UnwatchEndpoint(ctx, state)
	case endpoint.State == endpoints.Withdrawn:
		return Health{}, r.outbox.ForgetEndpoint(ctx, state.MerchantID)
	case endpoint.State != endpoints.Published || endpoint.UID == "":
		return Health{}, nil // perhaps not published yet
	case state.Outdates(endpoint.Noted(age), now):
		return Health{}, nil // another dispatcher knows what the webhook is by now
	case age > endpoints.MaxAge && state.Target != endpoint.Target:
		return Health{}, nil // others know what the webhook is by now, and it may be disabled there
	case endpoint.URL != "" && state.Target != endpoint.Target:
		resumed, err := r.outbox.ResumeEndpoint(ctx, state.MerchantID, endpoint.Noted(age))
		if resumed {
			r.healthChanged.Set()
		}
		return Health{}, err
	}
	h := newHealth(endpoint, state, now)
	countsOnly := h.Reason == state.Reported.Reason && endpoint.URL != ""
	switch {
	case countsOnly && !state.CountsChanged():
		if h.healthy() && state.Reported.Pending == 0 {
			return h, r.outbox.UnwatchEndpoint(ctx, state)
		}
		return h, nil
	case countsOnly && h.Reason == "", !state.MayReportChange(now), !r.retries.due(state.MerchantID), !budget.allows(countsOnly):
		return h, nil
	}
	return h, r.report(ctx, endpoint, h, state, budget)
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
		if budget.left == 0 || h.Reason == "" || h.Reason != state.Reported.Reason || !outdated(state, found.Now) || !r.retries.due(state.MerchantID) {
			continue // a changed reason is for reportHealth
		}
		if err := r.report(ctx, endpoint, h, state, budget); err != nil {
			return false, err
		}
	}
	return false, r.refreshBlocked(ctx, bucket, budget)
}

func outdated(state outbox.EndpointState, now time.Time) bool {
	last := state.Reported
	return now.Sub(last.At) >= refreshAge && (state.LastDelivery.After(last.At) || state.LastFailure.Time.After(last.At) ||
		state.Pending != last.Pending || state.Dead != last.Dead)
}

// report writes the health of an endpoint into its Merchant's status, and remembers that. The error is of Redis.
func (r *Reporter) report(ctx context.Context, endpoint endpoints.Endpoint, h Health, state outbox.EndpointState, budget *reportBudget) error {
	if h.Reason != "" || state.Reported.Reason != "" {
		budget.spend(h.Reason == state.Reported.Reason)
		if !r.updateStatus(ctx, endpoint, h, state) {
			return nil
		}
	}
	if endpoint.URL == "" {
		return r.outbox.ForgetEndpoint(ctx, state.MerchantID)
	}
	return r.outbox.RecordEndpointReport(ctx, state, h.Reason, h.healthy())
}

// updateStatus reports whether that needs no repetition.
func (r *Reporter) updateStatus(ctx context.Context, endpoint endpoints.Endpoint, h Health, state outbox.EndpointState) bool {
	err := r.writer.Report(ctx, endpoint, Report{h, state, h.eventType(state)})
	done := r.retries.note(ctx, state.MerchantID, err)
	switch {
	case errors.Is(err, ErrMerchantGone), ctx.Err() != nil:
	case err != nil:
		r.log.Error("could not update webhook health; retrying", "merchant", endpoint.Merchant.String(), "error", err)
	case h.Reason != state.Reported.Reason:
		r.logHealth(endpoint, h, state)
	}
	return done
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
