package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/published"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/index"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// lastUseFieldOwner owns status.lastUsedTime, which the reconciliation of an ApiKey neither writes nor removes.
const lastUseFieldOwner = writes.FieldOwner + "-last-use"

// lastUseWrites bounds the writes of a round, so that the keys which are in use cost etcd at most two writes a second.
const lastUseWrites = 120

// lastUses copies the last uses of keys, which the dispatcher publishes, into the status of their ApiKeys.
type lastUses struct {
	client    client.Client
	namespace string // of published objects
	interval  time.Duration
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
		var configMap corev1.ConfigMap
		err := l.client.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: published.LastUseName(shard)}, &configMap)
		if apierrors.IsNotFound(err) {
			err = l.create(ctx, shard)
		}
		if err != nil {
			return fmt.Errorf("ConfigMap %s: %w", published.LastUseName(shard), err)
		}
		uses, err := published.DecodeLastUses(&configMap)
		if err != nil {
			continue
		}
		for keyID, used := range uses {
			if left == 0 {
				return nil
			}
			wrote, err := l.report(ctx, keyID, used)
			if err != nil {
				return err
			}
			if wrote {
				left--
			}
		}
	}
	return nil
}

// create lets the dispatcher update the ConfigMap; it may create none. Without our label nobody sees the ConfigMap.
func (l *lastUses) create(ctx context.Context, shard int) error {
	configMap, err := published.EncodeLastUses(l.namespace, shard, nil)
	if err != nil {
		return err
	}
	err = l.client.Create(ctx, configMap, client.FieldOwner(writes.FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// report writes the last use of a key, if it is later than the one in the status.
func (l *lastUses) report(ctx context.Context, keyID string, used time.Time) (wrote bool, err error) {
	keys, err := index.ApiKeys.Find(ctx, l.client, published.KeyName(keyID))
	if err != nil {
		return false, fmt.Errorf("find the ApiKey of key %s: %w", keyID, err)
	}
	for _, key := range keys {
		if last := key.Status.LastUsedTime; last != nil && !used.After(last.Time) {
			continue
		}
		// The version keeps the status from another object of the same name.
		apply := v1alpha1ac.ApiKey(key.Name, key.Namespace).WithResourceVersion(key.ResourceVersion).
			WithStatus(v1alpha1ac.ApiKeyStatus().WithLastUsedTime(metav1.NewTime(used)))
		err := l.client.Status().Apply(ctx, apply, client.ForceOwnership, client.FieldOwner(lastUseFieldOwner))
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("write the last use of ApiKey %s/%s: %w", key.Namespace, key.Name, err)
		}
		return true, nil
	}
	return false, nil
}
