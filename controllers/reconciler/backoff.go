package reconciler

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// NewController begins a controller of objects in the credentials namespace, with one reconciliation at a time and the operator's delays of
// retries. tenant returns the namespace of the Merchant or ApiKey that a request is about: each has its own budget of retries.
func NewController(mgr manager.Manager, name string, tenant func(reconcile.Request) string) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: newRetriesOf(tenant)})
}

// NewTenantController begins a controller that writes into tenants' namespaces. The objects of one namespace have at most a quarter of its
// concurrent reconciliations: an admission webhook there may let each write wait for its deadline.
func NewTenantController(mgr manager.Manager, name string, parallel int) *builder.Builder {
	queue := func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return newSharedQueue(priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) {
			o.RateLimiter, o.Log = limiter, mgr.GetLogger().WithValues("controller", name)
		}), parallel/4) //nolint:mnd // see above
	}
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel, RateLimiter: newRetries(), NewQueue: queue})
}

// NewRestrictionController begins a controller of what only restricts, which writes in the credentials namespace alone. Tenants take turns, so
// that none delays the restriction of another, however many objects it changes. tenant returns the namespace of the Merchant or ApiKey that a
// request is about.
func NewRestrictionController(mgr manager.Manager, name string, tenant func(reconcile.Request) string) *builder.Builder {
	const parallel = 4
	return ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(controller.Options{
		MaxConcurrentReconciles: parallel, ReconciliationTimeout: restrictTimeout,
		RateLimiter: newRetriesOf(tenant),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return newRoundRobinQueue(name, limiter, tenant)
		},
	})
}

// retries delay a request that failed: twice as long each time, up to maxRetry, because a revocation may be what failed. What a tenant can
// make fail waits longer, see failures. The retries of a namespace at the longest delay have a budget; those beyond it wait for crowdedRetry.
type retries struct {
	workqueue.TypedRateLimiter[reconcile.Request]

	tenant  func(reconcile.Request) string
	budgets budgets[string]
}

const (
	minRetry, maxRetry = 5 * time.Millisecond, 5 * time.Second
	crowdedRetry       = time.Minute
	// retriesPerSecond are those of 100 objects.
	retriesPerSecond = 20
)

func newRetries() retries { return newRetriesOf(RequestNamespace) }

func newRetriesOf(tenant func(reconcile.Request) string) retries {
	return retries{
		workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry), tenant,
		newBudgets[string](retriesPerSecond, retriesPerSecond),
	}
}

// RequestNamespace returns the namespace of the object that a request names.
func RequestNamespace(request reconcile.Request) string { return request.Namespace }

// When returns the delay of a request that failed.
func (r retries) When(request reconcile.Request) time.Duration {
	delay := r.TypedRateLimiter.When(request)
	if delay >= maxRetry && !r.budgets.of(r.tenant(request)).Allow() {
		return crowdedRetry
	}
	return delay
}

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
