package reconciler

import (
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/controllers/conditions"
)

// Warned are the reasons that people were warned of, by the condition that has the reason. They stand until the reason is another one.
type Warned map[string]string

// Has reports whether there was a warning of that reason, which still stands.
func (w Warned) Has(condition, reason string) bool { return w[condition] == reason }

// warnings remembers of each object what people were warned of, so that a warning is emitted once, and again only after it has ended. The
// status decides nothing of that: tenants may write it. The zero value is ready for use.
type warnings struct {
	mu sync.Mutex
	// young and old are what stands, by UID; nil: nothing. When young is full it replaces old.
	young, old map[types.UID]Warned
}

// maxWarned is of how many objects the warnings are remembered at least. What is forgotten counts as not seen yet.
const maxWarned = 1 << 17

// get returns what stands for an object, and whether that is known.
func (w *warnings) get(object types.UID) (standing Warned, seen bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if standing, seen = w.young[object]; !seen {
		standing, seen = w.old[object]
	}
	return maps.Clone(standing), seen
}

func (w *warnings) set(object types.UID, standing Warned) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.young[object]; !known && (w.young == nil || len(w.young) >= maxWarned) {
		w.young, w.old = map[types.UID]Warned{}, w.young
	}
	if len(standing) == 0 {
		standing = nil // 50 bytes less of each object
	}
	w.young[object] = standing
}

// Warned returns the warnings that stand for an object. At its first pass these are the ones that the status has, as an operator before
// this one has written it: a new leader does not repeat all warnings of a cluster. Of an object that was created since, none stands.
func (b *Base) Warned(object client.Object, status []metav1.Condition) Warned {
	standing, seen := b.warnings.get(object.GetUID())
	if standing == nil {
		standing = Warned{}
	}
	if !seen && !b.Younger(object) {
		for _, c := range status {
			standing[c.Type] = c.Reason
		}
	}
	return standing
}

// Notify emits each warning of the notices that does not stand yet, remembers the warnings that stand now, and returns the reasons
// of the emitted ones. before are the warnings that stood: see Warned.
func (b *Base) Notify(object client.Object, before Warned, action string, notices []conditions.Notice) (emitted []string) {
	standing := Warned{}
	for _, n := range notices {
		kind := n.Condition.Type
		switch stood, ok := before[kind]; {
		case n.Unread || n.Condition.Status == metav1.ConditionUnknown:
			if ok {
				standing[kind] = stood
			}
		case n.Event != "":
			standing[kind] = n.Condition.Reason
			if !before.Has(kind, n.Condition.Reason) {
				b.Warn(object, n.Event, action, "%s", n.Condition.Message)
				emitted = append(emitted, n.Event)
			}
		}
	}
	b.warnings.set(object.GetUID(), standing)
	return emitted
}
