// Package lastuse knows when API keys were last used, as dispatchers publish it.
package lastuse

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Evidence is what is known of the uses of one ApiKey.
type Evidence struct {
	// ReadTime and RecordingSince are those of published.LastUses; zero ReadTime: nothing is known of this ApiKey.
	ReadTime, RecordingSince time.Time
	Uses                     published.DigestUses
}

// Index finds the uses of an ApiKey in the ConfigMaps of the credentials namespace, where only dispatchers write them. It is safe for concurrent
// use.
type Index struct {
	reader    client.Reader
	namespace string

	mu     sync.Mutex
	shards [published.LastUseShards]decoded
}

// decoded is the content of one version of a ConfigMap.
type decoded struct {
	version string
	uses    published.LastUses
}

// New returns an Index of what the reader, a cache, has in the namespace of published objects.
func New(reader client.Reader, namespace string) *Index {
	return &Index{reader: reader, namespace: namespace}
}

// ApiKey returns what is known of an ApiKey, by its key id.
func (i *Index) ApiKey(ctx context.Context, keyID string) (Evidence, error) {
	all, err := i.Shard(ctx, published.LastUseShard(keyID))
	if err != nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return Evidence{}, err
	}
	uses, known := all.Keys[keyID]
	if !known {
		return Evidence{}, nil
	}
	return Evidence{ReadTime: all.ReadTime, RecordingSince: all.RecordingSince, Uses: uses}, nil
}

// Shard returns what is known of all ApiKeys of a shard; nothing if its ConfigMap cannot be decoded. Nobody may change it.
func (i *Index) Shard(ctx context.Context, shard int) (published.LastUses, error) {
	var configMap corev1.ConfigMap
	name := client.ObjectKey{Namespace: i.namespace, Name: published.LastUseName(shard)}
	if err := i.reader.Get(ctx, name, &configMap, client.UnsafeDisableDeepCopy); err != nil {
		return published.LastUses{}, fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if cached := &i.shards[shard]; cached.version != configMap.ResourceVersion {
		cached.uses, _ = published.DecodeLastUses(&configMap) // nothing is known of what cannot be decoded
		cached.version = configMap.ResourceVersion
	}
	return i.shards[shard].uses, nil
}
