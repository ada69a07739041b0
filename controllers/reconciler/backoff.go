package reconciler

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// failures delay the next reconciliation of an object that failed, whatever asks for it. The queue's own back-off does not: a
// reconciliation that writes a Secret and then fails is asked for again by the watch of that Secret, at once. A new spec is tried at
// once. The zero value is ready for use.
type failures struct {
	mu     sync.Mutex
	failed map[types.UID]failure
	pruned time.Time
}

type failure struct {
	generation int64 // of the spec
	count      int   // in a row
	until      time.Time
}

// The delay after a first failure, and the longest one.
const minBackoff, maxBackoff = 10 * time.Millisecond, 5 * time.Minute

// wait returns for how long the object must not be reconciled.
func (f *failures) wait(object client.Object, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, failed := f.failed[object.GetUID()]
	if !failed || last.generation != object.GetGeneration() {
		return 0
	}
	return min(last.until.Sub(now), maxBackoff) // also if the clock was set back
}

// note remembers how a reconciliation ended. An object that succeeds, or ends, is forgotten; one that vanishes, some minutes later.
func (f *failures) note(object client.Object, failed bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.failed[object.GetUID()]
	if !failed {
		delete(f.failed, object.GetUID())
		return
	}
	if last.generation != object.GetGeneration() {
		last = failure{generation: object.GetGeneration()}
	}
	const doublings = 15 // of minBackoff, to maxBackoff
	delay := min(minBackoff<<min(last.count, doublings), maxBackoff)
	if f.failed == nil {
		f.failed = map[types.UID]failure{}
	}
	f.failed[object.GetUID()] = failure{last.generation, last.count + 1, now.Add(delay)}
	f.prune(now)
}

// prune forgets objects that have not been tried again for long after their delay: they are gone, whether or not somebody saw them go.
func (f *failures) prune(now time.Time) {
	if since := now.Sub(f.pruned); since >= 0 && since < maxBackoff {
		return
	}
	f.pruned = now
	maps.DeleteFunc(f.failed, func(_ types.UID, last failure) bool { return now.Sub(last.until) > maxBackoff })
}
