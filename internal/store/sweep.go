package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// corruptRetry is the time until a session that could not be read is looked at again.
const corruptRetry = time.Hour

// Swept is what a sweep found.
type Swept struct {
	// Expired sessions that were not read since their time was over, without those of test mode.
	Expired int
	// Corrupt sessions that could not be read. They are looked at again after corruptRetry.
	Corrupt int
	// More: further sessions may be overdue.
	More bool
	// Oldest is for how long the most overdue one had been due; zero: none was.
	Oldest time.Duration
}

// overdueEntry is a row of list_overdue: an expiry queue with its first sessions, or a single session.
type overdueEntry struct {
	name, since string
	sessions    []string
}

func (e overdueEntry) isQueue() bool { return strings.Trim(e.name, "0123456789") == "" }

// Sweep expires sessions of the bucket whose time is over, and settles those of test mode that get a payment without anybody's doing: the longest
// overdue first, and at most limit of them. All lifetimes among them have an equal share of the limit. It takes two trips, because a script declares
// the keys that it writes, and two more for each session of test mode. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Sweep(ctx context.Context, bucket session.Bucket, limit int) (Swept, error) {
	space := redis.BucketKeyspace(bucket)
	overdue, err := s.listOverdue(ctx, space, limit)
	if err != nil {
		return Swept{}, fmt.Errorf("list overdue sessions: %w", err)
	}
	if len(overdue) == 0 {
		return Swept{}, nil
	}
	if err := s.settleTests(ctx, space, overdue); err != nil { // first: a sweep takes what it has looked at out of the index
		return Swept{}, err
	}
	swept, err := s.sweep(ctx, space, overdue)
	if err != nil {
		return Swept{}, fmt.Errorf("sweep a bucket: %w", err)
	}
	swept.More = swept.More || len(overdue) >= limit
	return swept, nil
}

func (s *Store) listOverdue(ctx context.Context, space redis.Keyspace, limit int) (overdue []overdueEntry, err error) {
	call := redis.NewCall(listOverdueScript)
	call.Key("expiry_key", space, outbox.ExpiryKey)
	call.Int("limit", int64(limit))
	call.Text("expiry_queue_prefix", space.Key(expiryQueueKey))
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return nil, err
	}
	reply.RequireOK()
	rows := reply.List()
	for rows.More() {
		row := rows.List()
		entry := overdueEntry{name: row.Text(), since: row.Text()}
		sessions := row.List()
		for sessions.More() {
			entry.sessions = append(entry.sessions, sessions.Text())
		}
		if err := errors.Join(row.Err(), sessions.Err()); err != nil {
			return nil, err
		}
		overdue = append(overdue, entry)
	}
	return overdue, errors.Join(reply.Err(), rows.Err())
}

func (s *Store) sweep(ctx context.Context, space redis.Keyspace, overdue []overdueEntry) (Swept, error) {
	call := redis.NewCall(sweepScript)
	call.Key("expiry_key", space, outbox.ExpiryKey)
	call.Key("queue_key", space, outbox.QueueKey)
	call.Key("due_key", space, outbox.DueKey)
	for _, entry := range overdue {
		if entry.isQueue() {
			call.MoreKey(space, expiryQueueKey, entry.name)
		}
		for _, listed := range entry.sessions {
			id, account := parseListed(space, listed)
			call.MoreKey(space, sessionhash.Key, id)
			call.MoreKey(space, outbox.EventKey, feed.ListedEventID(id, feed.MarkEnded))
			call.MoreKey(space, outbox.FeedKey, account)
		}
	}
	call.Text("history", s.historyArg)
	for _, entry := range overdue {
		call.More(entry.name)
		call.More(entry.since)
		call.MoreInt(int64(len(entry.sessions)))
		for _, listed := range entry.sessions {
			call.More(listed)
		}
	}
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return Swept{}, err
	}
	reply.RequireOK()
	swept := Swept{Expired: int(reply.Int()), Corrupt: int(reply.Int()), Oldest: time.Duration(reply.Int()) * time.Millisecond}
	swept.More = reply.Int() > 0
	return swept, reply.Err()
}

// parseListed returns session id and account of an entry: its name is the key of the session, or whatever else somebody left in the index.
func parseListed(space redis.Keyspace, name string) (id, account string) {
	id = strings.TrimPrefix(name, space.Key(sessionhash.Key))
	if parsed, err := session.ParseID(id); err == nil {
		return id, parsed.Account()
	}
	return id, id // it has no session, and so no feed
}
