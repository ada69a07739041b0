package status

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

const (
	// lastUseReads bounds the keys that a round reads from Redis. The next round continues with the next bucket.
	lastUseReads = 20_000
	// lastUsePause is the least time between two writes of a shard, for every lastUsePauseKeys in it. It bounds the bytes
	// that etcd has to store.
	lastUsePause     = time.Minute
	lastUsePauseKeys = 250
)

// lastUses are the last uses of keys that this dispatcher knows. Only its loop uses it.
type lastUses struct {
	bucket session.Bucket // the next to read
	shards [published.LastUseShards]lastUseShard
}

type lastUseShard struct {
	uses      map[string]time.Time // by key id, from Redis
	published map[string]time.Time // as they were written or read last
	written   time.Time
}

// publishLastUses reads last uses from Redis, and publishes those that are a step later than the published ones. The
// operator, which has no Redis, shows them in the status of ApiKeys. Dispatchers do the same work; the slower one finds it
// done. The error is of Redis.
func (r *Reporter) publishLastUses(ctx context.Context) (more bool, err error) {
	if err := r.readLastUses(ctx); err != nil {
		return false, err
	}
	for i := range r.lastUses.shards {
		shard := &r.lastUses.shards[i]
		if r.now().Sub(shard.written) < lastUsePause*time.Duration(len(shard.published)/lastUsePauseKeys) || !r.merge(shard, maps.Clone(shard.published)) {
			continue
		}
		err := r.writer.UpdateLastUses(ctx, i, func(current map[string]time.Time) bool {
			shard.published = current
			return r.merge(shard, current)
		})
		switch {
		case err == nil:
			shard.written = r.now()
			continue
		case !apierrors.IsConflict(err) && ctx.Err() == nil && r.log.Allow("last uses", time.Minute):
			r.log.Error("could not publish the last uses of keys; retrying", "error", err)
		}
		shard.published = nil // it was not written, or another dispatcher was faster
	}
	return false, nil
}

// readLastUses reads some buckets.
func (r *Reporter) readLastUses(ctx context.Context) error {
	read := 0
	for range session.Buckets {
		if read >= lastUseReads {
			break
		}
		bucket := r.lastUses.bucket
		keyIDs := r.index.KeyIDs(bucket)
		uses, err := r.store.LastUses(ctx, bucket, keyIDs)
		if err != nil {
			return err
		}
		for keyID, used := range uses {
			shard := &r.lastUses.shards[published.LastUseShard(keyID)]
			if shard.uses == nil {
				shard.uses = map[string]time.Time{}
			}
			shard.uses[keyID] = used
		}
		read += len(keyIDs)
		r.lastUses.bucket = (bucket + 1) % session.Buckets
	}
	return nil
}

// merge brings published last uses up to date, without those of keys that are not published any more, and reports whether
// anything changed.
func (r *Reporter) merge(shard *lastUseShard, uses map[string]time.Time) (changed bool) {
	maps.DeleteFunc(shard.uses, func(keyID string, _ time.Time) bool { return !r.index.HasKey(keyID) })
	if uses == nil && len(shard.uses) > 0 {
		return true // nothing is known of what is published
	}
	for keyID, used := range shard.uses {
		if used.Sub(uses[keyID]) >= published.LastUseStep {
			uses[keyID], changed = used.Truncate(time.Second), true
		}
	}
	for keyID := range uses {
		if !r.index.HasKey(keyID) {
			delete(uses, keyID)
			changed = true
		}
	}
	return changed
}
