package reconciler

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Warned are the reasons that people were warned of, by the condition that has the reason. They stand until the reason is another one.
type Warned map[string]string

// Has reports whether there was a warning of that reason, which still stands.
func (w Warned) Has(condition, reason string) bool { return w[condition] == reason }

// warnings remembers of each object what people were warned of, so that a warning is emitted once, and again only after it has ended. The
// status decides nothing of that: tenants may write it. The zero value is ready for use.
type warnings struct {
	once    sync.Once
	began   time.Time
	objects *lru.Cache // Warned by UID
}

// maxWarned is of how many objects the warnings are remembered. What is forgotten counts as not seen yet.
const maxWarned = 1 << 17

func (w *warnings) begin(now time.Time) {
	w.once.Do(func() { w.began, w.objects = now, lru.New(maxWarned) })
}

// Warned returns the warnings that stand for an object. At its first pass these are the ones that the status has, as an operator before
// this one has written it: a new leader does not repeat all warnings of a cluster. Of an object that was created since, none stands.
func (b *Base) Warned(object client.Object, status []metav1.Condition) Warned {
	b.warnings.begin(b.Clock.Now())
	if standing, seen := b.warnings.objects.Get(object.GetUID()); seen {
		return standing.(Warned) //nolint:forcetypeassert // nothing else is in it
	}
	standing := Warned{}
	if !object.GetCreationTimestamp().After(b.warnings.began) {
		for _, c := range status {
			standing[c.Type] = c.Reason
		}
	}
	return standing
}

// NoteWarned remembers the warnings that stand for an object now.
func (b *Base) NoteWarned(object client.Object, standing Warned) {
	b.warnings.begin(b.Clock.Now())
	b.warnings.objects.Add(object.GetUID(), standing)
}
