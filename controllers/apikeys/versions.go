package apikeys

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/index"
)

// version is one of a published record.
type version struct {
	order      published.Order
	generation int64
}

// newVersion returns the version of a record.
func newVersion(record published.KeyRecord) version {
	return version{record.Order(), record.Generation}
}

// versions remembers the newest version of each record that this operator has read, written, or seen to vanish. So it recognizes a restored
// record, as the replicas of the API do, and gives no generation twice although the cache and its events are late. A restart forgets. The zero
// value is ready for use.
type versions struct {
	mu    sync.Mutex
	known map[string]knownVersion // by key id
}

// knownVersion is the newest version of a record.
type knownVersion struct {
	version
	// vanished is true after the version was seen to vanish, or to be replaced by an older one, until there is a newer one again.
	vanished bool
}

// newest returns the version of a key id; the zero value: none is known.
func (v *versions) newest(keyID string) knownVersion {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known[keyID]
}

// exists notes a version that was read or written.
func (v *versions) exists(keyID string, version version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if version.order.Compare(v.known[keyID].order) > 0 {
		v.set(keyID, knownVersion{version: version})
	}
}

// replaced notes that a record was replaced by another one; the zero version: by none, or one that cannot be read.
func (v *versions) replaced(keyID string, before, after version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	last := v.known[keyID]
	last.generation = max(last.generation, before.generation, after.generation)
	if before.order.Compare(last.order) >= 0 {
		last.order, last.vanished = before.order, true
	}
	if after.order.Compare(last.order) >= 0 {
		last.order, last.vanished = after.order, false
	}
	v.set(keyID, last)
}

func (v *versions) set(keyID string, known knownVersion) {
	if v.known == nil {
		v.known = map[string]knownVersion{}
	}
	v.known[keyID] = known
}

// forget forgets a key id whose ApiKey was deleted.
func (v *versions) forget(keyID string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, keyID)
}

// rememberVersions passes every event of a published Secret but those of a start, which looks at each ApiKey anyway. It remembers what versions of a
// key's record are seen.
func (r *Reconciler) rememberVersions(ctx context.Context) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if before, keyID := decodeVersion(e.ObjectOld); keyID != "" {
				after, _ := decodeVersion(e.ObjectNew)
				r.versions.replaced(keyID, before, after)
			}
			return true
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			switch before, keyID := decodeVersion(e.Object); {
			case keyID == "":
			case r.needed(ctx, e.Object.GetName()):
				r.versions.replaced(keyID, before, version{})
			default:
				r.versions.forget(keyID)
				r.audited.forget(keyID)
			}
			return true
		},
	}
}

// needed reports whether the cache has an ApiKey that is not being deleted for the published Secret of that name.
func (r *Reconciler) needed(ctx context.Context, name string) bool {
	sources, err := index.ApiKeys.Find(ctx, r.Client, name)
	return err == nil && len(sources) > 0 && sources[0].GetDeletionTimestamp().IsZero()
}

// decodeVersion returns the version of a published record, and its key id; empty: it cannot be read.
func decodeVersion(object client.Object) (v version, keyID string) {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Labels[published.Label] != published.LabelKey {
		return version{}, ""
	}
	record, err := published.DecodeKey(secret)
	if err != nil {
		return version{}, ""
	}
	return newVersion(record), record.KeyID
}
