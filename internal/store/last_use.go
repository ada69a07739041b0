package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// usesAreWritten is how often a replica writes the last use of an API key: often enough for people, and rarely enough that nearly
// no request has to.
const usesAreWritten = time.Minute

// lastUses remembers the API keys whose last use this replica has written in the current minute. Each replica does so on its
// own, so what Redis holds is never older than a minute.
type lastUses struct {
	mu      sync.Mutex
	began   time.Time
	written map[string]struct{}
}

func newLastUses() *lastUses { return &lastUses{written: map[string]struct{}{}} }

// due tells whether a use at the time is to be written.
func (l *lastUses) due(keyID string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= usesAreWritten {
		l.began = now
		clear(l.written)
		return true
	}
	_, done := l.written[keyID]
	return !done
}

// wrote takes down that a use was written.
func (l *lastUses) wrote(keyID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[keyID] = struct{}{}
}

// lastUsesBatch bounds how long one script blocks Redis.
const lastUsesBatch = 256

// LastUses returns when API keys of a bucket were last used, to within a minute, by key id. Those that were not used for
// 90 days are left out. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) LastUses(ctx context.Context, bucket session.Bucket, keyIDs []string) (map[string]time.Time, error) {
	uses := make(map[string]time.Time, len(keyIDs))
	for batch := range slices.Chunk(keyIDs, lastUsesBatch) {
		keys := make([]string, len(batch))
		for i, keyID := range batch {
			keys[i] = redis.KeyspaceOf(bucket).Key(redis.LastUseKey, keyID)
		}
		reply, err := s.redis.Run(ctx, readLastUsesScript, keys)
		if err != nil {
			return nil, fmt.Errorf("read last uses: %w", err)
		}
		for _, keyID := range batch {
			if used := reply.OptionalMillis(); !used.IsZero() {
				uses[keyID] = used
			}
		}
		if err := reply.Err(); err != nil {
			return nil, fmt.Errorf("read last uses: %w", err)
		}
	}
	return uses, nil
}
