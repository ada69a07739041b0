package reconciler

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/index"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
)

// Changes passes changes of the spec, the loss of the finalizer or of the status, the begin of a deletion, and another object of the
// same name. The operator's own status writes do not pass: otherwise a failure with a varying message would be retried
// without back-off.
func Changes(statusConditions func(client.Object) []metav1.Condition) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		if !after.GetDeletionTimestamp().IsZero() {
			return before.GetDeletionTimestamp().IsZero() || before.GetUID() != after.GetUID()
		}
		return before.GetGeneration() != after.GetGeneration() ||
			before.GetUID() != after.GetUID() ||
			controllerutil.ContainsFinalizer(before, v1alpha1.Finalizer) && !controllerutil.ContainsFinalizer(after, v1alpha1.Finalizer) ||
			len(statusConditions(after)) == 0
	}}
}

// TenantSecrets watches the Secrets that belong to objects of owner's kind, in tenants' namespaces.
func (b *Base) TenantSecrets(mgr manager.Manager, owner client.Object) source.Source {
	return source.Kind(b.Secrets.Cache, tenantsecret.Metadata(), handler.TypedEnqueueRequestForOwner[*metav1.PartialObjectMetadata](
		mgr.GetScheme(), mgr.GetRESTMapper(), owner, handler.OnlyControllerOwner()))
}

// fewRequests are as urgent as an event of the object itself.
const fewRequests = 10

// EnqueueMapped enqueues what an object of another kind concerns. If that is many objects, they have the priority of those that a start looks at:
// a tenant can have thousands of ApiKeys of one Merchant, and change that again and again. A change of another's ApiKey does not wait for them, and
// what is due at a time waits for none that came after it.
func EnqueueMapped(requests handler.MapFunc) handler.EventHandler {
	enqueue := func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request], object client.Object, changed bool) {
		var options priorityqueue.AddOpts
		all := requests(ctx, object)
		if !changed || len(all) > fewRequests {
			options.Priority = new(handler.LowPriority)
		}
		if prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
			prioritized.AddWithOpts(options, all...)
			return
		}
		for _, request := range all { // see controller.Options.UsePriorityQueue
			queue.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, queue, e.Object, !e.IsInInitialList)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, queue, e.ObjectNew, e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion()) // both have one name
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, queue, e.Object, true)
		},
	}
}

// Requests returns a request for each object that the list finds in the cache.
func Requests(ctx context.Context, reader client.Reader, list client.ObjectList, options ...client.ListOption) []reconcile.Request {
	options = append(options, client.UnsafeDisableDeepCopy)
	if err := reader.List(ctx, list, options...); err != nil { // the cache is stopping
		logf.FromContext(ctx).Error(err, "could not list the objects to reconcile")
	}
	var requests []reconcile.Request
	_ = meta.EachListItem(list, func(item runtime.Object) error { // the error is that of this function
		if object, ok := item.(client.Object); ok {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	return requests
}

// Sources returns a request for each object whose published object has that name.
func Sources[O client.Object](ctx context.Context, cache client.Reader, by index.Index[O], name string) []reconcile.Request {
	sources, err := by.Find(ctx, cache, name)
	if err != nil { // the cache is stopping
		logf.FromContext(ctx).Error(err, "could not list the objects to reconcile")
	}
	var requests []reconcile.Request
	for _, source := range sources {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(source)})
	}
	return requests
}

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

// AfterWrite is how soon to reconcile again if the cache is older than the operator's own write.
const AfterWrite = 50 * time.Millisecond

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
