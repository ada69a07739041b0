package status

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
)

const (
	// blockedBuckets is how many buckets with blocked addresses a round reads: all of them in 16 rounds, which is about half a minute.
	blockedBuckets = session.Buckets / 16
	// blockedPerRound bounds how many of them a round reports. Health has a budget of its own,
	// which a tenant whose endpoints flap can use up.
	blockedPerRound = 10
	// maxShownBlocks is how many blocks a status may have.
	maxShownBlocks = 16
)

// reportBlocked reports changed blocks of some buckets. Namespaces take turns, so that none takes
// the budget of others, and what is left comes when these buckets do again. The error is of Redis.
func (r *Reporter) reportBlocked(ctx context.Context, pending []outbox.PendingReports) error {
	buckets := slices.DeleteFunc(beginningAt(r.nextBlocked, pending), func(work outbox.PendingReports) bool { return !work.Blocked })
	if len(buckets) == 0 {
		return nil
	}
	var changes []blockedChange
	for _, work := range buckets[:min(len(buckets), blockedBuckets)] {
		found, err := r.findChangedBlocks(ctx, work.Bucket)
		if err != nil {
			return err
		}
		changes = append(changes, found...)
		r.nextBlocked = work.Bucket + 1
	}
	last := &r.lastBlocked[buckets[0].Bucket]
	budget := &reportBudget{left: blockedPerRound}
	namespace := func(change blockedChange) string { return change.endpoint.Merchant.Namespace }
	for _, change := range loop.InTurn(changes, namespace, *last) {
		if budget.left == 0 || !r.retries.due(change.endpoint, r.now()) {
			continue
		}
		*last = change.endpoint.Merchant.Namespace
		if err := r.writeBlocked(ctx, change, budget); err != nil {
			return err
		}
	}
	return nil
}

// blockedChange are the blocked addresses of a merchant, whose status has to change.
type blockedChange struct {
	endpoint  endpoints.Endpoint
	addresses blocked.Addresses
	status    *v1alpha1.AllowlistStatus
}

// findChangedBlocks returns the merchants of a bucket whose blocks have changed since the last
// report, and may be reported now. It forgets the blocks of deleted merchants.
func (r *Reporter) findChangedBlocks(ctx context.Context, bucket session.Bucket) (changes []blockedChange, err error) {
	found, now, err := r.blocked.List(ctx, bucket)
	if err != nil {
		return nil, err
	}
	for _, addresses := range found {
		endpoint := r.index.Endpoint(addresses.MerchantID)
		switch {
		case endpoint.State == endpoints.Withdrawn:
			if err := r.blocked.Forget(ctx, addresses.MerchantID); err != nil {
				return nil, err
			}
			continue
		case endpoint.State != endpoints.Published || endpoint.UID == "":
			continue // perhaps not published yet
		}
		status := allowlistStatus(r.index.Allowlist(addresses.MerchantID), addresses)
		if !isReported(status, addresses) && addresses.MayReportChange(now) {
			changes = append(changes, blockedChange{endpoint, addresses, status})
		}
	}
	return changes, nil
}

// refreshBlocked reports times and counts of one bucket again that have changed, the oldest report first.
func (r *Reporter) refreshBlocked(ctx context.Context, bucket session.Bucket) error {
	found, now, err := r.blocked.List(ctx, bucket)
	if err != nil {
		return err
	}
	budget := &reportBudget{left: refreshesPerRound}
	for _, addresses := range found {
		endpoint := r.index.Endpoint(addresses.MerchantID)
		status := allowlistStatus(r.index.Allowlist(addresses.MerchantID), addresses)
		if budget.left == 0 || endpoint.UID == "" || status == nil || !isReported(status, addresses) || // changed blocks are for reportBlocked
			now.Sub(addresses.ReportedAt) < refreshAge || !seenSince(addresses.ReportedAt, addresses) || !r.retries.due(endpoint, r.now()) {
			continue
		}
		if err := r.writeBlocked(ctx, blockedChange{endpoint, addresses, status}, budget); err != nil {
			return err
		}
	}
	return nil
}

// writeBlocked writes the status of a Merchant, and remembers that. The error is of Redis.
func (r *Reporter) writeBlocked(ctx context.Context, change blockedChange, budget *reportBudget) error {
	budget.spend(false)
	if !r.updateAllowlist(ctx, change.endpoint, change.status) {
		return nil
	}
	return r.blocked.RecordReport(ctx, change.addresses, blockNames(change.status))
}

// updateAllowlist reports whether that needs no repetition.
func (r *Reporter) updateAllowlist(ctx context.Context, endpoint endpoints.Endpoint, status *v1alpha1.AllowlistStatus) bool {
	done, err := r.write(ctx, endpoint, func() error { return r.writer.ReportAllowlist(ctx, endpoint, status) })
	if !done && ctx.Err() == nil {
		r.log.Error("could not update status.allowlist; retrying", "merchant", endpoint.Merchant.String(), "error", err)
	}
	return done
}

// allowlistStatus is pure: it returns what the status says of blocked addresses; nil: nothing. A block that the list was changed for is left
// out, until the changed list blocks an address of it.
func allowlistStatus(list allowlist.List, addresses blocked.Addresses) *v1alpha1.AllowlistStatus {
	status := &v1alpha1.AllowlistStatus{}
	for _, found := range addresses.Blocks {
		block, ok := list.ParseBlock(found.Block)
		var keyID string
		if !ok {
			block, keyID, ok = allowlist.ParseKeyBlock(found.Block)
		}
		switch {
		case ok && len(status.Refused) < maxShownBlocks:
			status.Refused = append(status.Refused, v1alpha1.RefusedBlock{
				Block: block.String(), KeyID: keyID, Requests: found.Requests, LastSeen: metav1.NewTime(found.LastSeen.Truncate(time.Second)),
			})
		case ok, found.Block == blocked.OtherBlocks:
			status.OtherRequests += found.Requests
		}
	}
	if len(status.Refused) == 0 {
		return nil
	}
	return status
}

// isReported reports whether the blocks of the status are those that were reported last.
func isReported(status *v1alpha1.AllowlistStatus, addresses blocked.Addresses) bool {
	nothing := addresses.ReportedAt.IsZero()
	return blockNames(status) == addresses.Reported && nothing == (addresses.Reported == "")
}

// seenSince reports whether there was a request from a blocked address after this time.
func seenSince(since time.Time, addresses blocked.Addresses) bool {
	return slices.ContainsFunc(addresses.Blocks, func(block blocked.Block) bool { return block.LastSeen.After(since) })
}

// blockNames names the blocks of a status in a fixed order; empty: none.
func blockNames(status *v1alpha1.AllowlistStatus) string {
	if status == nil {
		return ""
	}
	names := make([]string, len(status.Refused))
	for i, refused := range status.Refused {
		names[i] = refused.Block
		if refused.KeyID != "" {
			names[i] += " " + refused.KeyID
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
