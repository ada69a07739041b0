package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
func (d *dispatcher) publishLastUses(ctx context.Context) (more bool, err error) {
	if err := d.readLastUses(ctx); err != nil {
		return false, err
	}
	for i := range d.lastUses.shards {
		shard := &d.lastUses.shards[i]
		if d.now().Sub(shard.written) < lastUsePause*time.Duration(len(shard.published)/lastUsePauseKeys) || !d.merge(shard, maps.Clone(shard.published)) {
			continue
		}
		err := d.reporter.UpdateLastUses(ctx, i, func(current map[string]time.Time) bool {
			shard.published = current
			return d.merge(shard, current)
		})
		switch {
		case err == nil:
			shard.written = d.now()
			continue
		case !apierrors.IsConflict(err) && ctx.Err() == nil && d.log.Allow("last uses", time.Minute):
			d.log.Error("could not publish the last uses of keys; retrying", "error", err)
		}
		shard.published = nil // it was not written, or another dispatcher was faster
	}
	return false, nil
}

// readLastUses reads some buckets.
func (d *dispatcher) readLastUses(ctx context.Context) error {
	read := 0
	for range session.Buckets {
		if read >= lastUseReads {
			break
		}
		bucket := d.lastUses.bucket
		keyIDs := d.index.KeyIDs(bucket)
		uses, err := d.store.LastUses(ctx, bucket, keyIDs)
		if err != nil {
			return err
		}
		for keyID, used := range uses {
			shard := &d.lastUses.shards[published.LastUseShard(keyID)]
			if shard.uses == nil {
				shard.uses = map[string]time.Time{}
			}
			shard.uses[keyID] = used
		}
		read += len(keyIDs)
		d.lastUses.bucket = (bucket + 1) % session.Buckets
	}
	return nil
}

// merge brings published last uses up to date, without those of keys that are not published any more, and reports whether
// anything changed.
func (d *dispatcher) merge(shard *lastUseShard, uses map[string]time.Time) (changed bool) {
	maps.DeleteFunc(shard.uses, func(keyID string, _ time.Time) bool { return !d.index.HasKey(keyID) })
	if uses == nil && len(shard.uses) > 0 {
		return true // nothing is known of what is published
	}
	for keyID, used := range shard.uses {
		if used.Sub(uses[keyID]) >= published.LastUseStep {
			uses[keyID], changed = used.Truncate(time.Second), true
		}
	}
	for keyID := range uses {
		if !d.index.HasKey(keyID) {
			delete(uses, keyID)
			changed = true
		}
	}
	return changed
}

// UpdateLastUses writes only the version that merge has changed. There is nothing to do without the ConfigMap, which the
// operator creates, or if a newer operator has written it.
func (r *kubeReporter) UpdateLastUses(ctx context.Context, shard int, merge func(map[string]time.Time) bool) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	var configMap corev1.ConfigMap
	key := client.ObjectKey{Namespace: r.namespace, Name: published.LastUseName(shard)}
	if err := r.client.Get(ctx, key, &configMap); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	uses, err := published.DecodeLastUses(&configMap)
	switch {
	case errors.Is(err, published.ErrNewerVersion):
		return nil
	case err != nil:
		uses = map[string]time.Time{}
	}
	if !merge(uses) {
		return nil
	}
	want, err := published.EncodeLastUses(r.namespace, shard, uses)
	if err != nil {
		return err
	}
	want.UID, want.ResourceVersion = configMap.UID, configMap.ResourceVersion
	if err := r.client.Update(ctx, want, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", key, err)
	}
	return nil
}
