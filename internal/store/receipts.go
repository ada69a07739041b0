package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// The customer of a session that was paid and has an address gets a receipt. The script that completes the session lists it in
// receiptsKey, where a dispatcher leases it. It ends with the mail, or when it is given up; so does the address.

// PendingReceipts counts the receipts of a bucket.
type PendingReceipts struct {
	Bucket session.Bucket
	// Due can be leased now; All also wait for their next try, or for the end of a lease.
	Due, All int64
}

// PendingReceipts counts the receipts of all buckets in one round trip; in a Redis Cluster, it takes one to each server, and what those return
// that answered is returned beside the error of the others. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (s *Store) PendingReceipts(ctx context.Context) ([]PendingReceipts, error) {
	all, err := redis.Poll(ctx, s.redis, pollReceiptsScript, []string{receiptsKey}, nil, func(reply *redis.Reply, bucket session.Bucket) PendingReceipts {
		return PendingReceipts{Bucket: bucket, Due: reply.Int(), All: reply.Int()}
	})
	if err != nil {
		err = fmt.Errorf("count the receipts: %w", err)
	}
	return all, err
}

// LeasedReceipt is the right to send one receipt for a while.
type LeasedReceipt struct {
	ID session.ID
	// until is when the lease ends, ms. No other lease of this receipt ends then.
	until int64
}

// LeaseReceipts takes receipts of the bucket that are due, for a time: those that are neither ended nor deferred by then are due again. What
// is no session in the list is removed from it. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (s *Store) LeaseReceipts(ctx context.Context, bucket session.Bucket, lease time.Duration, limit int) ([]LeasedReceipt, error) {
	const what = "lease receipts"
	space := redis.BucketKeyspace(bucket)
	call := redis.NewCall(leaseReceiptsScript)
	call.Key("receipts_key", space, receiptsKey)
	call.Millis("lease_ms", lease)
	call.Int("limit", int64(limit))
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	reply.RequireOK()
	until, listed := reply.Int(), reply.List()
	var leased []LeasedReceipt
	var strays []string
	for listed.More() {
		text := listed.Text()
		if id, err := session.ParseID(text); err == nil && id.Bucket() == bucket {
			leased = append(leased, LeasedReceipt{ID: id, until: until})
		} else {
			strays = append(strays, text)
		}
	}
	if err := errors.Join(reply.Err(), listed.Err()); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for _, stray := range strays {
		if err := s.endReceipt(ctx, space, stray, until); err != nil {
			return leased, err
		}
	}
	return leased, nil
}

// Receipt is what a receipt says, and to whom.
type Receipt struct {
	Session session.Session
	// Age is how long ago the session was completed.
	Age time.Duration
}

// Receipt reads what a leased receipt is of. Errors: ErrNotFound if none is due, because the session is gone, has no address or was not paid;
// redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Receipt(ctx context.Context, leased LeasedReceipt) (Receipt, error) {
	call := redis.NewCall(readReceiptScript)
	call.Key("session_key", redis.BucketKeyspace(leased.ID.Bucket()), sessionKey, leased.ID.String())
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return Receipt{}, fmt.Errorf("read the session of a receipt: %w", err)
	}
	reply.RequireOK()
	now, fields := reply.Millis(), reply.List()
	if err := reply.Err(); err != nil {
		return Receipt{}, err
	}
	if !found(&fields) {
		return Receipt{}, ErrNotFound
	}
	read, err := parseSession(leased.ID, &fields)
	switch {
	case err != nil:
		return Receipt{}, err
	case read.Status != session.Completed || read.Charge.CustomerEmail == "":
		return Receipt{}, ErrNotFound
	}
	return Receipt{Session: read, Age: now.Sub(read.EndedAt)}, nil
}

// EndReceipt ends a receipt that was sent or given up, and forgets the address. Errors: outbox.ErrLeaseLost, redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) EndReceipt(ctx context.Context, leased LeasedReceipt) error {
	return s.endReceipt(ctx, redis.BucketKeyspace(leased.ID.Bucket()), leased.ID.String(), leased.until)
}

func (s *Store) endReceipt(ctx context.Context, space redis.Keyspace, sessionID string, until int64) error {
	call := redis.NewCall(endReceiptScript)
	call.Key("receipts_key", space, receiptsKey)
	call.Key("session_key", space, sessionKey, sessionID)
	call.Text("session_id", sessionID)
	call.Int("leased_until", until)
	reply, err := s.redis.Run(ctx, &call)
	return outbox.LeaseError("end a receipt", &reply, err)
}

// DeferReceipt makes a receipt due again after a delay. Errors are those of EndReceipt.
func (s *Store) DeferReceipt(ctx context.Context, leased LeasedReceipt, delay time.Duration) error {
	call := redis.NewCall(deferReceiptScript)
	call.Key("receipts_key", redis.BucketKeyspace(leased.ID.Bucket()), receiptsKey)
	call.Text("session_id", leased.ID.String())
	call.Int("leased_until", leased.until)
	call.Millis("delay", delay)
	reply, err := s.redis.Run(ctx, &call)
	return outbox.LeaseError("defer a receipt", &reply, err)
}
