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

// lastUseWrites bounds the ApiKeys of a round, so that the keys which are in use cost etcd at most two writes a second.
const lastUseWrites = 120

// lastUses lets ApiKeys be reconciled whose status has an outdated last use.
type lastUses struct {
	client    client.Client
	index     *lastuse.Index
	namespace string // of published objects
	interval  time.Duration
	outdated  chan<- event.TypedGenericEvent[*v1alpha1.ApiKey]
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

// round creates the ConfigMaps that are missing, and reports what is in the others. One that cannot be decoded is left to
// the dispatcher.
func (l *lastUses) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	left := lastUseWrites
	for shard := range published.LastUseShards {
		uses, err := l.index.Shard(ctx, shard)
		if apierrors.IsNotFound(err) {
			err = l.create(ctx, shard)
		}
		if err != nil {
			return err
		}
		for keyID, of := range uses.Keys {
			if left == 0 {
				break
			}
			reported, err := l.report(ctx, keyID, of)
			if err != nil {
				return err
			}
			if reported {
				left--
			}
		}
	}
	return nil
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

// report lets the ApiKey be reconciled if its status is outdated.
func (l *lastUses) report(ctx context.Context, keyID string, uses published.DigestUses) (reported bool, err error) {
	if uses == "" {
		return false, nil
	}
	keys, err := index.ApiKeys.Find(ctx, l.client, published.KeyName(keyID))
	if err != nil {
		return false, fmt.Errorf("find the ApiKey of key %s: %w", keyID, err)
	}
	for _, key := range keys {
		outdated, err := apikeys.LastUseOutdated(ctx, l.client, l.namespace, key, uses)
		if err != nil || !outdated {
			return false, err
		}
		select {
		case l.outdated <- event.TypedGenericEvent[*v1alpha1.ApiKey]{Object: key}:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}
