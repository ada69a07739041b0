package outbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// DefaultMaxPending is how many events of an account wait for delivery at most: those of a day with one a second. They take
// about 80 MB.
const DefaultMaxPending = 100_000

// ReasonTooMany is why an event is a dead letter that is beyond the bound of its account.
const ReasonTooMany = "too_many_pending"

// Excess is events of an account beyond its bound.
type Excess struct {
	// MerchantID is a bare id.
	MerchantID string
	TestMode   bool

	account string
	most    int64    // that the account may have
	queued  []string // as the queue has them
}

// excessBatch bounds how long a script blocks Redis.
const excessBatch = 100

// MaxPending returns how many events of an account may wait for delivery, if those of a live one may be so many.
func MaxPending(most int64, testMode bool) int64 {
	if testMode {
		return min(most, feed.TestEntries)
	}
	return most
}

// queuedEventID returns the id of an event from how the queue has it; empty: it is none.
func queuedEventID(queued string) string {
	words := strings.Split(queued, ":")
	if len(words) < 3 {
		return ""
	}
	return words[2]
}

// Excess returns events of accounts that have more than so many in the queue of the bucket, those that are due first. Of a large excess it
// returns only some. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) Excess(ctx context.Context, bucket session.Bucket, most int64) ([]Excess, error) {
	const what = "find events beyond the bound of their account"
	space := redis.BucketKeyspace(bucket)
	call := redis.NewCall(listExcessScript)
	call.Key("queue_key", space, QueueKey)
	call.Key("due_key", space, DueKey)
	call.Int("most", most)
	call.Int("most_of_test", MaxPending(most, true))
	call.Int("limit", excessBatch)
	reply, err := o.redis.Run(ctx, &call)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	reply.RequireOK()
	var all []Excess
	for rows := reply.List(); rows.More(); {
		row := rows.List()
		one := Excess{account: row.Text()}
		one.MerchantID, one.TestMode = session.ParseAccount(one.account)
		one.most = MaxPending(most, one.TestMode)
		for queued := row.List(); queued.More(); {
			one.queued = append(one.queued, queued.Text())
		}
		if row.Err() != nil {
			return nil, fmt.Errorf("%s: %w", what, row.Err())
		}
		all = append(all, one)
	}
	if err := reply.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}

// EndExcess makes the events dead letters, or ends them if they are of test mode, as long as their account has too many, and returns how many.
// Those that a dispatcher is trying are left. merchant is namespace and name of the Merchant. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) EndExcess(ctx context.Context, excess Excess, merchant string) (int, error) {
	const what = "end events beyond the bound of their account"
	bucket := session.MerchantBucket(excess.MerchantID)
	lease := Lease{bucket: bucket, queued: excess.account}
	call := redis.NewCall(endExcessScript)
	call.Key("queue_key", lease.space(), QueueKey)
	call.Key("due_key", lease.space(), DueKey)
	lease.deadLetterKeys(&call)
	for _, queued := range excess.queued {
		call.MoreKey(lease.space(), EventKey, queuedEventID(queued))
	}
	call.Text("account", excess.account)
	call.Int("most", excess.most)
	call.Text("reason", ReasonTooMany)
	call.Text("merchant_name", merchant)
	for _, queued := range excess.queued {
		call.More(queued)
	}
	reply, err := o.redis.Run(ctx, &call)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	reply.RequireOK()
	ended, dropped := int(reply.Int()), reply.List()
	if err := reply.Err(); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	o.dropOldest(ctx, lease, dropped)
	return ended, nil
}
