package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// HoldersKept is how long the holders of leases are kept after the last heartbeat of any. It is longer than any lease.
const HoldersKept = 10 * time.Minute

// ErrHolderRemoved says that a holder made no heartbeat for so long that it was removed. Its leases are free.
var ErrHolderRemoved = errors.New("the holder was removed")

// HolderBuckets returns the buckets whose leases each have holders of their own: one that stands for all of them, and in a Redis Cluster each, so that
// a server that fails leaves the leases of the others alone.
func (o *Outbox) HolderBuckets() []session.Bucket {
	if o.redis.Clustered() {
		return session.AllBuckets()
	}
	return []session.Bucket{0}
}

// Heartbeat counts a heartbeat of a holder of leases, the first one if it is new, and returns how many each holder has made. Errors: ErrHolderRemoved,
// redis.ErrCorrupt, redis.ErrUnavailable.
func (o *Outbox) Heartbeat(ctx context.Context, bucket session.Bucket, holder string, isNew bool) (map[string]string, error) {
	call := redis.NewCall(heartbeatScript)
	call.Key("holders_key", redis.BucketKeyspace(bucket), holdersKey)
	call.Text("holder", holder)
	call.Flag("new", isNew)
	call.Millis("keep_ms", HoldersKept)
	reply, err := o.redis.Run(ctx, &call)
	if err := LeaseError("make a heartbeat", &reply, err); errors.Is(err, ErrLeaseLost) {
		return nil, ErrHolderRemoved
	} else if err != nil {
		return nil, err
	}
	heartbeats := reply.Map()
	if err := reply.Err(); err != nil {
		return nil, fmt.Errorf("make a heartbeat: %w", err)
	}
	return heartbeats, nil
}

// RemoveHolder removes a holder, unless it has made another heartbeat, and reports whether it did. Then the caller frees its leases and forgets it;
// if not, it can be removed again. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) RemoveHolder(ctx context.Context, bucket session.Bucket, holder, heartbeats string) (bool, error) {
	call := redis.NewCall(removeHolderScript)
	call.Key("holders_key", redis.BucketKeyspace(bucket), holdersKey)
	call.Text("holder", holder)
	call.Text("heartbeats", heartbeats)
	reply, err := o.redis.Run(ctx, &call)
	if err := LeaseError("remove a holder of leases", &reply, err); err != nil {
		return false, err
	}
	return reply.Int() == 1, reply.Err()
}

// ForgetHolder forgets a removed holder whose leases are free. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) ForgetHolder(ctx context.Context, bucket session.Bucket, holder string) error {
	call := redis.NewCall(forgetHolderScript)
	call.Key("holders_key", redis.BucketKeyspace(bucket), holdersKey)
	call.Text("holder", holder)
	reply, err := o.redis.Run(ctx, &call)
	return LeaseError("forget a holder of leases", &reply, err)
}

// freeBatch bounds how long free_leases blocks Redis.
const freeBatch = 256

// FreeLeases makes the events of a bucket due at once that a removed holder has leased, and returns how many there were. The error is
// redis.ErrCorrupt or redis.ErrUnavailable.
func (o *Outbox) FreeLeases(ctx context.Context, bucket session.Bucket, holder string) (freed int, err error) {
	space := redis.BucketKeyspace(bucket)
	for after := "-"; after != "("; {
		call := redis.NewCall(freeLeasesScript)
		call.Key("queue_key", space, QueueKey)
		call.Key("due_key", space, DueKey)
		call.Text("holder", holder)
		call.Text("after", after)
		call.Text("limit", strconv.Itoa(freeBatch))
		reply, err := o.redis.Run(ctx, &call)
		if err := LeaseError("free leases", &reply, err); err != nil {
			return freed, err
		}
		after = "(" + reply.Text()
		freed += int(reply.Int())
		if err := reply.Err(); err != nil {
			return freed, fmt.Errorf("free leases: %w", err)
		}
	}
	return freed, nil
}
