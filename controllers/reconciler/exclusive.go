package reconciler

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// restricting are the objects of which a reconciliation is publishing a restriction or an end. The zero value is ready for use.
type restricting struct {
	mu      sync.Mutex
	objects map[types.UID]bool
}

// restrictTimeout is how long the publication of a restriction may take, so that one that hangs is tried again by whoever comes next.
const restrictTimeout = 10 * time.Second

// Restrict lets one reconciliation at a time publish what only restricts the object: the one of the controller for restrictions, or the one of
// the controller for all the rest. ok is false while the other one does it. The context ends after restrictTimeout. Call release before
// anything is written into a tenant's namespace.
func (b *Base) Restrict(ctx context.Context, object client.Object) (restricting context.Context, release func(), ok bool) {
	r, uid := &b.restricting, object.GetUID()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.objects[uid] {
		return nil, nil, false
	}
	if r.objects == nil {
		r.objects = map[types.UID]bool{}
	}
	r.objects[uid] = true
	restricting, cancel := context.WithTimeout(ctx, restrictTimeout)
	return restricting, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.objects, uid)
	}, true
}
