package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Swept is what a sweep found.
type Swept struct {
	// Expired sessions that nobody had read since their time was over, without those of test mode.
	Expired int
	// Corrupt sessions that could not be read. They are looked at again after an hour.
	Corrupt int
	// More: the limit was reached, and more may be overdue.
	More bool
	// Oldest is for how long the most overdue one had been due; zero: none was.
	Oldest time.Duration
}

// Sweep expires sessions of the bucket whose time is over, the longest overdue first and at most limit
// of them. It takes a trip to learn which they are, and one for each lifetime among them, as a script declares the keys that it
// writes. Errors: redis.ErrCorrupt, redis.ErrUnavailable; what was swept until then is returned with them.
func (s *Store) Sweep(ctx context.Context, bucket session.Bucket, limit int) (Swept, error) {
	space := redis.KeyspaceOf(bucket)
	reply, err := s.redis.Run(ctx, listOverdueScript, []string{space.Key(outbox.ExpiryKey)}, limit, space.Key(expiryQueueKey))
	if err != nil {
		return Swept{}, fmt.Errorf("list overdue sessions: %w", err)
	}
	reply.OK()
	entries := reply.List()
	if err := reply.Err(); err != nil {
		return Swept{}, fmt.Errorf("list overdue sessions: %w", err)
	}
	var sum Swept
	var examined int64
	for entries.More() {
		entry := entries.List()
		swept, n, err := s.sweepEntry(ctx, space, &entry)
		if err != nil {
			return sum, fmt.Errorf("sweep a bucket: %w", err)
		}
		sum.Expired, sum.Corrupt, sum.Oldest = sum.Expired+swept.Expired, sum.Corrupt+swept.Corrupt, max(sum.Oldest, swept.Oldest)
		examined += n
	}
	sum.More = examined >= int64(limit)
	return sum, nil
}

// sweepEntry sweeps one row of list_overdue: an expiry queue or a single session.
func (s *Store) sweepEntry(ctx context.Context, space redis.Keyspace, entry *redis.Reply) (swept Swept, examined int64, err error) {
	name, since, queue := entry.Text(), entry.Text(), entry.List()
	keys := []string{space.Key(outbox.ExpiryKey), space.Key(outbox.QueueKey), space.Key(outbox.DueKey)}
	var reply redis.Reply
	if strings.Trim(name, "0123456789") == "" {
		keys = append(keys, space.Key(expiryQueueKey, name))
		args := []any{name, since}
		for queue.More() {
			listed := queue.Text()
			keys, args = appendSession(keys, space, listed), append(args, listed)
		}
		reply, err = s.redis.Run(ctx, sweepQueueScript, keys, args...)
	} else {
		if err := s.act(ctx, strings.TrimPrefix(name, space.Key(sessionKey))); err != nil {
			return Swept{}, 0, err
		}
		reply, err = s.redis.Run(ctx, sweepSessionScript, appendSession(keys, space, name), name)
	}
	if err != nil {
		return Swept{}, 0, err
	}
	reply.OK()
	swept = Swept{Expired: int(reply.Int()), Corrupt: int(reply.Int())}
	examined = reply.Int()
	swept.Oldest = time.Duration(reply.Int()) * time.Millisecond
	return swept, examined, errors.Join(reply.Err(), entry.Err(), queue.Err())
}

// act does what a test session does by itself, once it is due. The session stays in the index until sweep_session has seen it, so a
// program that ends in between loses nothing, and a second one finds its payment reported.
func (s *Store) act(ctx context.Context, name string) error {
	id, err := session.ParseID(name)
	if err != nil || !id.TestMode() {
		return nil //nolint:nilerr // what else is in the index is for sweep_session
	}
	read, err := s.WatchedSession(ctx, id)
	if err != nil {
		return unlessLeft(err)
	}
	outcome, acts := session.TestOutcomeOf(read.AmountCents)
	if !acts || outcome.Payment == (session.Payment{}) || outcome.Late != read.Status.Final() {
		return nil
	}
	_, err = s.SettleTest(ctx, id, outcome.Payment)
	return unlessLeft(err)
}

// unlessLeft drops errors of one session, which are left to sweep_session.
func unlessLeft(err error) error {
	if errors.Is(err, redis.ErrUnavailable) {
		return err
	}
	return nil
}

// appendSession appends the keys of a session and of the event of its end. The name is its key, or whatever else somebody left in the
// index.
func appendSession(keys []string, space redis.Keyspace, name string) []string {
	id := strings.TrimPrefix(name, space.Key(sessionKey))
	return append(keys, space.Key(sessionKey, id), space.Key(outbox.EventKey, outbox.SessionEventIDOf(id, outbox.MarkEnded)))
}
