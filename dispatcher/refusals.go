package dispatcher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// refusalBuckets is how many buckets with refusals a round reads: all of them in 16 rounds, which is about half a minute.
const refusalBuckets = session.Buckets / 16

// reportRefusals reports changed blocks of some buckets, from what the reports of health leave of the round's budget.
func (d *dispatcher) reportRefusals(ctx context.Context, pending []outbox.PendingWork, budget *reportBudget) error {
	buckets := slices.DeleteFunc(beginningAt(d.nextRefusals, pending), func(work outbox.PendingWork) bool { return !work.Refusals })
	for _, work := range buckets[:min(len(buckets), refusalBuckets)] {
		found, now, err := d.store.Refusals(ctx, work.Bucket)
		if err != nil {
			return err
		}
		for _, refusals := range found {
			if err := d.reportChangedRefusals(ctx, refusals, now, budget); err != nil {
				return err
			}
		}
		if budget.left > 0 {
			d.nextRefusals = work.Bucket + 1 // else it begins here the next time
		}
	}
	return nil
}

// reportChangedRefusals reports a merchant's refusals if their blocks are not those that were reported last. The error is of Redis.
func (d *dispatcher) reportChangedRefusals(ctx context.Context, refusals store.MerchantRefusals, now time.Time, budget *reportBudget) error {
	endpoint := d.index.Endpoint(refusals.MerchantID)
	switch {
	case endpoint.State == endpoints.Withdrawn:
		return d.store.ForgetRefusals(ctx, refusals)
	case endpoint.State != endpoints.Published || endpoint.UID == "":
		return nil // perhaps not published yet
	}
	status := refusedBy(d.index.Allowlist(refusals.MerchantID), refusals, now)
	blocks := blocksOf(status)
	switch {
	case blocks == "" && refusals.Reported.Blocks == "":
		return d.store.ForgetRefusals(ctx, refusals)
	case blocks == refusals.Reported.Blocks, budget.left == 0, !refusals.MayReportChange(now):
		return nil
	}
	return d.writeRefusals(ctx, endpoint, refusals, status, budget)
}

// refreshRefusals reports times and counts of one bucket again that have changed, the oldest report first.
func (d *dispatcher) refreshRefusals(ctx context.Context, bucket session.Bucket, budget *reportBudget) error {
	found, now, err := d.store.Refusals(ctx, bucket)
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b store.MerchantRefusals) int { return a.Reported.At.Compare(b.Reported.At) })
	for _, refusals := range found {
		endpoint := d.index.Endpoint(refusals.MerchantID)
		status := refusedBy(d.index.Allowlist(refusals.MerchantID), refusals, now)
		if budget.left == 0 || endpoint.UID == "" || status == nil || blocksOf(status) != refusals.Reported.Blocks ||
			now.Sub(refusals.Reported.At) < refreshAge || requestsOf(status) == refusals.Reported.Count {
			continue // changed blocks are for reportRefusals
		}
		if err := d.writeRefusals(ctx, endpoint, refusals, status, budget); err != nil {
			return err
		}
	}
	return nil
}

// writeRefusals writes the status of a Merchant, and remembers that. The error is of Redis.
func (d *dispatcher) writeRefusals(
	ctx context.Context, endpoint endpoints.Endpoint, refusals store.MerchantRefusals, status *v1alpha1.AllowlistStatus, budget *reportBudget,
) error {
	budget.spend(false)
	if !d.updateAllowlist(ctx, endpoint, status) {
		return nil
	}
	return d.store.RefusalsReported(ctx, refusals, blocksOf(status), requestsOf(status))
}

// updateAllowlist reports whether that needs no repetition.
func (d *dispatcher) updateAllowlist(ctx context.Context, endpoint endpoints.Endpoint, status *v1alpha1.AllowlistStatus) bool {
	err := d.reporter.ReportAllowlist(ctx, endpoint, status)
	if err == nil || errors.Is(err, errMerchantGone) {
		return true
	}
	if ctx.Err() == nil {
		d.options.Log.Error("could not update status.allowlist; retrying", "merchant", endpoint.Merchant.String(), "error", err)
	}
	return false
}

// refusedBy is pure: it returns what the status says of refusals; nil: nothing. A block that the list was changed for is left out, until
// the changed list refuses it too.
func refusedBy(list allowlist.List, refusals store.MerchantRefusals, now time.Time) *v1alpha1.AllowlistStatus {
	current, oldest := list.Fingerprint(), now.Add(-store.RefusalsShown)
	status := &v1alpha1.AllowlistStatus{}
	for _, refused := range refusals.Blocks {
		if refused.Last.Before(oldest) || refused.Allowlist != current && list.Overlaps(refused.Block) {
			continue
		}
		status.Refused = append(status.Refused, v1alpha1.RefusedBlock{
			Block: refused.Block.String(), Requests: refused.Count,
			FirstSeen: metav1.NewTime(refused.First.Truncate(time.Second)), LastSeen: metav1.NewTime(refused.Last.Truncate(time.Second)),
		})
	}
	if len(status.Refused) == 0 {
		return nil
	}
	if others := refusals.Others; !others.Last.Before(oldest) && others.Allowlist == current {
		status.OtherRequests = others.Count
	}
	return status
}

// blocksOf names the blocks of a status in a fixed order; empty: none.
func blocksOf(status *v1alpha1.AllowlistStatus) string {
	if status == nil {
		return ""
	}
	names := make([]string, len(status.Refused))
	for i, refused := range status.Refused {
		names[i] = refused.Block
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// requestsOf counts all requests of a status.
func requestsOf(status *v1alpha1.AllowlistStatus) int64 {
	if status == nil {
		return 0
	}
	sum := status.OtherRequests
	for _, refused := range status.Refused {
		sum += refused.Requests
	}
	return sum
}
