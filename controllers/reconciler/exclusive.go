package reconciler

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// restricting are the objects of which a reconciliation is publishing a restriction or an end. The zero value is ready for use.
type restricting struct {
	mu      sync.Mutex
	objects map[types.UID]bool
}

// Restrict lets one reconciliation at a time publish what only restricts the object: that of its own controller, or that of the controller
// which does all the rest. ok is false while the other one does it. Call release before anything is written into a tenant's namespace.
func (b *Base) Restrict(object client.Object) (release func(), ok bool) {
	r, uid := &b.restricting, object.GetUID()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.objects[uid] {
		return nil, false
	}
	if r.objects == nil {
		r.objects = map[types.UID]bool{}
	}
	r.objects[uid] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.objects, uid)
	}, true
}
