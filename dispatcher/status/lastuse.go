package status

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

const (
	// lastUseReads bounds the keys that a round reads from Redis. The next round continues with the next bucket.
	lastUseReads = 100_000
	// lastUsePause is the least time between two writes of a shard because of new uses, for every lastUsePauseKeys in it, but never more than
	// Options.LastUseStep. It bounds the bytes that etcd has to store.
	lastUsePause     = time.Minute
	lastUsePauseKeys = 250
)

// lastUses are the last uses of keys that this dispatcher knows. Only its loop uses it.
type lastUses struct {
	// loaded: what is published was read since the start.
	loaded bool
	bucket session.Bucket // the next to read
	// read says when each bucket was read, and since when it lost no use, by the clock of Redis.
	read [session.Buckets]struct{ at, since time.Time }
	// shards are by published.LastUseShard.
	shards [published.LastUseShards]lastUseShard
}

type lastUseShard struct {
	keys      map[string]published.DigestUses // by key id, from Redis
	published published.LastUses              // as it was written or read last
	written   time.Time
}

// publishLastUses reads last uses from Redis, and publishes those that are a step later than the published ones, and every step that they were
// read. The operator, which has no Redis, shows them in the status of ApiKeys. Dispatchers do the same work; the slower one finds it
// done. A frozen watch may miss keys, and the merchants that have their uses. The error is of Redis.
func (r *Reporter) publishLastUses(ctx context.Context) (more bool, err error) {
	if !r.loadLastUses(ctx) || r.index.Age() > endpoints.MaxAge {
		return false, nil
	}
	err = r.readLastUses(ctx) // of servers of a Redis Cluster that are gone; the others' uses are published
	readTime, since := r.lastUses.complete()
	if readTime.IsZero() {
		return false, err
	}
	for i := range r.lastUses.shards {
		shard := &r.lastUses.shards[i]
		maps.DeleteFunc(shard.keys, func(keyID string, _ published.DigestUses) bool { return !r.index.HasKey(keyID) })
		if !shard.due(shard.published, readTime, since, r.now(), r.lastUseStep) {
			continue
		}
		failure := r.writer.UpdateLastUses(ctx, i, func(current published.LastUses) (published.LastUses, bool) {
			shard.published = current
			if readTime.Before(current.ReadTime) || !shard.due(current, readTime, since, r.now(), r.lastUseStep) {
				return published.LastUses{}, false
			}
			shard.published = published.LastUses{ReadTime: readTime, RecordingSince: since, Keys: shard.merged(current)}
			return shard.published, true
		})
		switch {
		case failure == nil:
			shard.written = r.now()
			continue
		case !apierrors.IsConflict(failure):
			r.logLastUses(ctx, failure)
		}
		shard.published = published.LastUses{} // it was not written, or another dispatcher was faster
	}
	return false, err
}

func (r *Reporter) logLastUses(ctx context.Context, err error) {
	if ctx.Err() == nil && r.log.Allow("last uses", time.Minute) {
		r.log.Error("could not publish the last uses of keys; retrying", "error", err)
	}
}

// loadLastUses reads what is published, once: a Redis that does not know of the latest read has lost uses since.
func (r *Reporter) loadLastUses(ctx context.Context) bool {
	if r.lastUses.loaded {
		return true
	}
	for i := range r.lastUses.shards {
		current, err := r.writer.LastUses(ctx, i)
		if err != nil {
			r.logLastUses(ctx, err)
			return false
		}
		r.lastUses.shards[i].published = current
	}
	r.lastUses.loaded = true
	return true
}

// readLastUses reads some buckets, also those without keys, so that the uses of all are recorded from the same time on.
func (r *Reporter) readLastUses(ctx context.Context) error {
	var known time.Time
	for i := range r.lastUses.shards {
		known = later(known, r.lastUses.shards[i].published.ReadTime)
	}
	var buckets []session.Bucket
	keyIDs := map[session.Bucket][]string{}
	for done := 0; done < lastUseReads && len(buckets) < session.Buckets; r.lastUses.bucket = (r.lastUses.bucket + 1) % session.Buckets {
		bucket := r.lastUses.bucket
		buckets, keyIDs[bucket] = append(buckets, bucket), r.index.KeyIDs(bucket)
		done += len(keyIDs[bucket])
	}
	var mu sync.Mutex
	return r.redis.ForEach(ctx, buckets, func(ctx context.Context, bucket session.Bucket) error {
		uses, err := r.keys.LastUses(ctx, bucket, keyIDs[bucket], later(known, r.lastUses.read[bucket].at))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		r.lastUses.note(bucket, keyIDs[bucket], uses)
		return nil
	})
}

// note takes what was read of a bucket.
func (l *lastUses) note(bucket session.Bucket, keyIDs []string, uses keystate.LastUses) {
	for _, keyID := range keyIDs {
		shard := &l.shards[published.LastUseShard(keyID)]
		if shard.keys == nil {
			shard.keys = map[string]published.DigestUses{}
		}
		if of, known := uses.Keys[keyID]; known {
			shard.keys[keyID] = of
		} else {
			delete(shard.keys, keyID)
		}
	}
	l.read[bucket].at, l.read[bucket].since = uses.ReadTime, uses.RecordingSince
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// complete returns when all buckets were read, and since when none of them has lost a use; zero: one was not read yet.
func (l *lastUses) complete() (readTime, since time.Time) {
	for i := range l.read {
		bucket := &l.read[i]
		if i == 0 || bucket.at.Before(readTime) {
			readTime = bucket.at
		}
		since = later(since, bucket.since)
	}
	return readTime.Truncate(time.Second), since.Truncate(time.Second).Add(time.Second)
}

// due reports whether what is published is to be written again.
func (s *lastUseShard) due(current published.LastUses, readTime, since, now time.Time, step time.Duration) bool {
	switch {
	case len(s.keys) == 0 && len(current.Keys) == 0:
		return false
	case readTime.Sub(current.ReadTime) >= step, !since.Equal(current.RecordingSince):
		return true
	}
	return now.Sub(s.written) >= min(lastUsePause*time.Duration(len(current.Keys)/lastUsePauseKeys), step) && s.changes(current, step)
}

// changes reports whether uses or keys are not published.
func (s *lastUseShard) changes(current published.LastUses, step time.Duration) bool {
	if len(s.keys) != len(current.Keys) {
		return true
	}
	for keyID, uses := range s.keys {
		before, known := current.Keys[keyID]
		if _, changed := before.Merge(uses, step); changed || !known {
			return true
		}
	}
	return false
}

// merged returns the keys that were read, with the uses that Redis has lost since they were published.
func (s *lastUseShard) merged(current published.LastUses) map[string]published.DigestUses {
	merged := make(map[string]published.DigestUses, len(s.keys))
	for keyID, uses := range s.keys {
		merged[keyID], _ = current.Keys[keyID].Merge(uses, 0)
	}
	return merged
}
