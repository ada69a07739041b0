package reconciler

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// versions remembers which version of an object this operator has written, so that no pass starts from an older one: it would
// find undone what is done, and lose a race against its own write. The zero value is ready for use.
type versions struct {
	mu      sync.Mutex
	written map[types.UID]written
	pruned  time.Time
}

type written struct {
	version string
	at      time.Time
}

// afterWrite is how soon a pass follows one that found the cache behind what this operator wrote.
const afterWrite = 50 * time.Millisecond

// waitForCache is how long a cache is waited for. Versions go back when a database is restored, and then it would never come; a pass
// that starts from an old version does no harm but a refused write.
const waitForCache = 5 * time.Second

// wrote notes the version of an object that a write left.
func (v *versions) wrote(object types.UID, version string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.written == nil {
		v.written = map[types.UID]written{}
	}
	v.written[object] = written{version, now}
	v.prune(now)
}

// prune forgets what no cache is waited for any more, such as the versions of deleted objects.
func (v *versions) prune(now time.Time) {
	if now.Sub(v.pruned) < waitForCache {
		return
	}
	v.pruned = now
	maps.DeleteFunc(v.written, func(_ types.UID, w written) bool { return now.Sub(w.at) >= waitForCache })
}

// behind reports whether the object is older than what was written. What is not is forgotten, so that only objects are remembered
// that nothing has happened to since.
func (v *versions) behind(object client.Object, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, known := v.written[object.GetUID()]
	if !known {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), last.version)
	if err == nil && order < 0 && now.Sub(last.at) < waitForCache {
		return true
	}
	delete(v.written, object.GetUID())
	return false
}
