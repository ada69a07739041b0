package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// useRetention is how long the last uses of an ApiKey are kept after the last one.
const useRetention = 90 * 24 * time.Hour

// lastUses remembers the digests whose last use this replica has written in the current interval. Each replica does so on its
// own, so what Redis holds is never older than an interval.
type lastUses struct {
	// interval is long enough that nearly no request has to write.
	interval time.Duration

	mu      sync.Mutex
	began   time.Time
	written map[apikey.Digest]struct{}
}

func newLastUses(interval time.Duration) *lastUses {
	return &lastUses{interval: interval, written: map[apikey.Digest]struct{}{}}
}

// due reports whether a use at the time is to be written.
func (l *lastUses) due(digest apikey.Digest, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= l.interval {
		l.began = now
		clear(l.written)
		return true
	}
	_, done := l.written[digest]
	return !done
}

// markWritten remembers that a use was written.
func (l *lastUses) markWritten(digest apikey.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[digest] = struct{}{}
}

// forget lets every next use be written.
func (l *lastUses) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.written)
}

// UseDue reports whether the next request with a digest writes its last use, if the key is accepted.
func (s *Store) UseDue(digest apikey.Digest) bool { return s.uses.due(digest, time.Now()) }

// runAdmitted runs the script of a merchant's request. A Redis that was away may have lost the last writes, in a failover for example, so
// all uses are written again.
func (s *Store) runAdmitted(ctx context.Context, call *merchantCall) (redis.Reply, error) {
	reply, err := s.redis.Run(ctx, &call.Call)
	if err != nil && ctx.Err() == nil && errors.Is(err, redis.ErrUnavailable) {
		s.uses.forget()
	}
	return reply, err
}

// LastUses are those of ApiKeys of a bucket.
type LastUses struct {
	// ReadTime and RecordingSince are those of published.LastUses.
	ReadTime, RecordingSince time.Time
	// Keys has every ApiKey that was asked for, by its key id, but those whose uses cannot be decoded.
	Keys map[string]published.DigestUses
}

// lastUsesBatch bounds how long one script blocks Redis.
const lastUsesBatch = 256

// LastUses returns when the digests of ApiKeys of a bucket were last used, to within ten minutes. A use is kept for useRetention. known is when the
// caller knows that they were read before, by the clock of Redis; if Redis does not know of that, it was flushed or put back, and nothing is
// complete before now. Without keys only the times are read. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) LastUses(ctx context.Context, bucket session.Bucket, keyIDs []string, known time.Time) (LastUses, error) {
	uses := LastUses{Keys: make(map[string]published.DigestUses, len(keyIDs))}
	for first := 0; first == 0 || first < len(keyIDs); first += lastUsesBatch {
		batch := keyIDs[first:min(first+lastUsesBatch, len(keyIDs))]
		call := redis.NewCall(readLastUsesScript)
		call.Key("read_key", redis.BucketKeyspace(bucket), lastUsesReadKey)
		for _, keyID := range batch {
			call.MoreKey(redis.BucketKeyspace(bucket), lastUseKey, keyID)
		}
		call.Int("known", max(known.UnixMilli(), 0))
		reply, err := s.redis.Run(ctx, &call)
		if err != nil {
			return LastUses{}, fmt.Errorf("read last uses: %w", err)
		}
		since, read := reply.Millis(), reply.Millis()
		for _, keyID := range batch {
			if text := published.DigestUses(reply.OptionalText()); text.Valid() {
				uses.Keys[keyID] = text
			}
		}
		if err := reply.Err(); err != nil {
			return LastUses{}, fmt.Errorf("read last uses: %w", err)
		}
		if uses.ReadTime.IsZero() {
			uses.ReadTime = read
		}
		// A replica does not repeat what it wrote in its interval, and was lost since.
		uses.RecordingSince = since.Add(s.uses.interval)
	}
	return uses, nil
}
