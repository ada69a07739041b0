// Package receipts keeps the receipts in Redis that customers are owed: a session that was paid and has an address gets one. The script that
// completes the session lists it, and a dispatcher leases it. It ends with the mail, or when it is given up; so does the address.
package receipts

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// Key lists the receipts of a bucket: ids of sessions by when their receipts are due, in milliseconds.
const Key = "receipts"

// ErrNotOwed says that no receipt is owed, because the session is gone, has no address or was not paid.
var ErrNotOwed = errors.New("no receipt is owed")

//go:embed *.lua lib/*.lua
var files embed.FS

// Parts are the parts of the scripts here and in package store, by their names; see redis.NewScript.
var Parts = redis.Parts{
	"clock":        redis.Clock,
	"full":         outbox.Parts["full"],
	"list_receipt": redis.Part(files, "lib/list_receipt"),
}

var (
	pollScript  = script("poll_receipts")
	leaseScript = script("lease_receipts")
	readScript  = script("read_receipt")
	endScript   = script("end_receipt")
	deferScript = script("defer_receipt")
)

func script(operation string) *redis.Script {
	return redis.NewScript(operation, redis.Part(files, operation), Parts, sessionhash.Constants)
}

// Store is the receipts in Redis. It is safe for concurrent use.
type Store struct{ redis *redis.Client }

// New returns the receipts in a Redis.
func New(client *redis.Client) *Store { return &Store{client} }

// Pending is how many receipts wait in a bucket.
type Pending struct {
	Bucket session.Bucket
	// Due can be leased now; All also wait for their next try, or for the end of a lease.
	Due, All int64
}

// Pending counts the receipts of all buckets in one round trip; in a Redis Cluster, it takes one to each server, and what those return
// that answered is returned beside the error of the others. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (s *Store) Pending(ctx context.Context) ([]Pending, error) {
	all, err := redis.Poll(ctx, s.redis, pollScript, []string{Key}, nil, func(reply *redis.Reply, bucket session.Bucket) Pending {
		return Pending{Bucket: bucket, Due: reply.Int(), All: reply.Int()}
	})
	if err != nil {
		err = fmt.Errorf("count the receipts: %w", err)
	}
	return all, err
}

// Leased is the right to send one receipt for a while.
type Leased struct {
	ID session.ID
	// until is when the lease ends, ms. No other lease of this receipt ends then.
	until int64
}

// Lease takes receipts of the bucket that are due, for a time: those that are neither ended nor deferred by then are due again. What
// is no session in the list is removed from it. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (s *Store) Lease(ctx context.Context, bucket session.Bucket, lease time.Duration, limit int) ([]Leased, error) {
	const what = "lease receipts"
	space := redis.BucketKeyspace(bucket)
	call := redis.NewCall(leaseScript)
	call.Key("receipts_key", space, Key)
	call.Millis("lease_ms", lease)
	call.Int("limit", int64(limit))
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	reply.RequireOK()
	until, listed := reply.Int(), reply.List()
	var leased []Leased
	var strays []string
	for listed.More() {
		text := listed.Text()
		if id, err := session.ParseID(text); err == nil && id.Bucket() == bucket {
			leased = append(leased, Leased{ID: id, until: until})
		} else {
			strays = append(strays, text)
		}
	}
	if err := errors.Join(reply.Err(), listed.Err()); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for _, stray := range strays {
		if err := s.end(ctx, space, stray, until); err != nil {
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

// Read reads what a leased receipt is of. Errors: ErrNotOwed, redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Read(ctx context.Context, leased Leased) (Receipt, error) {
	call := redis.NewCall(readScript)
	call.Key("session_key", redis.BucketKeyspace(leased.ID.Bucket()), sessionhash.Key, leased.ID.String())
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return Receipt{}, fmt.Errorf("read the session of a receipt: %w", err)
	}
	reply.RequireOK()
	now, fields := reply.Millis(), reply.List()
	if err := reply.Err(); err != nil {
		return Receipt{}, err
	}
	if !sessionhash.Found(&fields) {
		return Receipt{}, ErrNotOwed
	}
	read, err := sessionhash.Parse(leased.ID, &fields)
	switch {
	case err != nil:
		return Receipt{}, err
	case read.Status != session.Completed || read.Charge.CustomerEmail == "":
		return Receipt{}, ErrNotOwed
	}
	return Receipt{Session: read, Age: now.Sub(read.EndedAt)}, nil
}

// End ends a receipt that was sent or given up, and forgets the address. Errors: outbox.ErrLeaseLost, redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) End(ctx context.Context, leased Leased) error {
	return s.end(ctx, redis.BucketKeyspace(leased.ID.Bucket()), leased.ID.String(), leased.until)
}

func (s *Store) end(ctx context.Context, space redis.Keyspace, sessionID string, until int64) error {
	call := redis.NewCall(endScript)
	call.Key("receipts_key", space, Key)
	call.Key("session_key", space, sessionhash.Key, sessionID)
	call.Text("session_id", sessionID)
	call.Int("leased_until", until)
	reply, err := s.redis.Run(ctx, &call)
	return outbox.LeaseError("end a receipt", &reply, err)
}

// Defer makes a receipt due again after a delay. Errors are those of End.
func (s *Store) Defer(ctx context.Context, leased Leased, delay time.Duration) error {
	call := redis.NewCall(deferScript)
	call.Key("receipts_key", redis.BucketKeyspace(leased.ID.Bucket()), Key)
	call.Text("session_id", leased.ID.String())
	call.Int("leased_until", leased.until)
	call.Millis("delay", delay)
	reply, err := s.redis.Run(ctx, &call)
	return outbox.LeaseError("defer a receipt", &reply, err)
}
