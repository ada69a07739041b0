package reconciler

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// versions remembers the last version of each object that this operator wrote. A reconciliation of an older version
// would lose a race against the operator's own write. The zero value is ready for use.
type versions struct {
	mu      sync.Mutex
	written map[types.UID]written
	pruned  time.Time
}

type written struct {
	version string
	at      time.Time
}

// afterWrite is how soon to reconcile again if the cache is older than the operator's own write.
const afterWrite = 50 * time.Millisecond

// waitForCache is the maximum wait for the cache. Versions go back when etcd is restored; reconciling an old version
// then only causes a refused write.
const waitForCache = 5 * time.Second

// wrote notes the version of an object after a write.
func (v *versions) wrote(object types.UID, version string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.written == nil {
		v.written = map[types.UID]written{}
	}
	v.written[object] = written{version, now}
	v.prune(now)
}

// prune forgets versions older than waitForCache.
func (v *versions) prune(now time.Time) {
	if now.Sub(v.pruned) < waitForCache {
		return
	}
	v.pruned = now
	maps.DeleteFunc(v.written, func(_ types.UID, w written) bool { return now.Sub(w.at) >= waitForCache })
}

// behind reports whether the object is older than the last write. If not, the version is forgotten.
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
