package controllers

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
	"github.com/merchant-operator/merchant-operator/controllers/index"
	"github.com/merchant-operator/merchant-operator/controllers/lastuse"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// lastUseWrites bounds the ApiKeys of a round, so that the keys which are in use cost etcd at most two writes a second. A namespace has
// lastUseShare of them, and what the others leave.
const (
	lastUseWrites = 120
	lastUseShare  = lastUseWrites / 4
)

// lastUses lets ApiKeys be reconciled whose status has an outdated last use.
type lastUses struct {
	client    client.Client
	index     *lastuse.Index
	namespace string // of published objects
	interval  time.Duration
	outdated  chan<- event.TypedGenericEvent[*v1alpha1.ApiKey]

	// next is the shard at which the next round begins.
	next int
}

// Start works until ctx ends, if this operator leads.
func (l *lastUses) Start(ctx context.Context) error {
	ticker := time.NewTicker(l.interval)
	defer ticker.Stop()
	for {
		if err := l.round(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "could not report the last uses of keys; retrying")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// round creates the ConfigMaps that are missing, and reports what is in the others, from where the last round ended. One that cannot be decoded
// is left to the dispatcher.
func (l *lastUses) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	r := lastUseRound{lastUses: l, left: lastUseWrites, reported: map[string]int{}}
	first := l.next
	for n := range published.LastUseShards {
		shard := (first + n) % published.LastUseShards
		if r.left > 0 {
			l.next = shard // the keys that were reported are up to date then
		}
		uses, err := l.index.Shard(ctx, shard)
		if apierrors.IsNotFound(err) {
			err = l.create(ctx, shard)
		}
		if err == nil {
			err = r.reportShard(ctx, uses.Keys)
		}
		if err != nil {
			l.next = (shard + 1) % published.LastUseShards
			return err
		}
	}
	return r.reportDeferred(ctx)
}

// lastUseRound is one round.
type lastUseRound struct {
	*lastUses

	left     int
	reported map[string]int // by namespace
	// deferred are some of the ApiKeys that are beyond the share of their namespace.
	deferred []*v1alpha1.ApiKey
}

// reportShard reports the uses of keys, as long as there is room.
func (r *lastUseRound) reportShard(ctx context.Context, keys map[string]published.DigestUses) error {
	for keyID, uses := range keys {
		if r.left == 0 {
			return nil
		}
		key, err := r.outdatedKey(ctx, keyID, uses)
		switch {
		case err != nil:
			return err
		case key == nil:
		case r.reported[key.Namespace] < lastUseShare:
			if err := r.report(ctx, key); err != nil {
				return err
			}
		default:
			r.deferred = append(r.deferred, key)
		}
	}
	return nil
}

// reportDeferred gives what is left to those that want more than their share.
func (r *lastUseRound) reportDeferred(ctx context.Context) error {
	for _, key := range r.deferred[:min(len(r.deferred), r.left)] {
		if err := r.report(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// report lets the ApiKey be reconciled.
func (r *lastUseRound) report(ctx context.Context, key *v1alpha1.ApiKey) error {
	select {
	case r.outdated <- event.TypedGenericEvent[*v1alpha1.ApiKey]{Object: key}:
		r.left--
		r.reported[key.Namespace]++
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outdatedKey returns the ApiKey of a key id if its status is outdated, and there may be room for it; nil: nothing is to be reported.
func (r *lastUseRound) outdatedKey(ctx context.Context, keyID string, uses published.DigestUses) (*v1alpha1.ApiKey, error) {
	if uses == "" {
		return nil, nil
	}
	keys, err := index.ApiKeys.Find(ctx, r.client, published.KeyName(keyID))
	if err != nil {
		return nil, fmt.Errorf("find the ApiKey of key %s: %w", keyID, err)
	}
	if len(keys) == 0 || r.reported[keys[0].Namespace] >= lastUseShare && len(r.deferred) >= lastUseWrites {
		return nil, nil
	}
	outdated, err := apikeys.LastUseOutdated(ctx, r.client, r.namespace, keys[0], uses)
	if err != nil || !outdated {
		return nil, err
	}
	return keys[0], nil
}

// create lets the dispatcher update the ConfigMap; it may create none. Without our label nobody sees the ConfigMap.
func (l *lastUses) create(ctx context.Context, shard int) error {
	configMap, err := published.EncodeLastUses(l.namespace, shard, published.LastUses{})
	if err != nil {
		return err
	}
	err = l.client.Create(ctx, configMap, client.FieldOwner(writes.FieldOwner))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ConfigMap %s: %w", configMap.Name, err)
	}
	return nil
}
