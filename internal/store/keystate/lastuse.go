package keystate

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// LastUses are the last uses of ApiKeys of a bucket.
type LastUses struct {
	// ReadTime and RecordingSince are those of published.LastUses.
	ReadTime, RecordingSince time.Time
	// Keys has every ApiKey that was asked for, by its key id, but those whose uses cannot be decoded.
	Keys map[string]published.DigestUses
}

// lastUsesBatch bounds how long one script blocks Redis.
const lastUsesBatch = 256

// LastUses returns when the digests of ApiKeys of a bucket were last used, to within ten minutes. A use is kept for 90 days. known is when the
// caller knows that they were read before, by the clock of Redis; if Redis does not know of that, it was flushed or put back, and nothing is
// complete before now. Without keys only the times are read. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) LastUses(ctx context.Context, bucket session.Bucket, keyIDs []string, known time.Time) (LastUses, error) {
	uses := LastUses{Keys: make(map[string]published.DigestUses, len(keyIDs))}
	for first := 0; first == 0 || first < len(keyIDs); first += lastUsesBatch {
		batch := keyIDs[first:min(first+lastUsesBatch, len(keyIDs))]
		call := redis.NewCall(readLastUsesScript)
		call.Key("read_key", redis.BucketKeyspace(bucket), lastUsesReadKey)
		for _, keyID := range batch {
			call.MoreKey(redis.BucketKeyspace(bucket), LastUseKey, keyID)
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
		uses.RecordingSince = since.Add(s.lastUseStep)
	}
	return uses, nil
}
