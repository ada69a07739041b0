package reconciler

import (
	"container/list"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newRoundRobinQueue returns a queue that serves the tenants in turn, so that one with thousands of requests delays the one request of another
// by no more than the requests in progress.
func newRoundRobinQueue(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request], tenant func(reconcile.Request) string,
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name: name,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
			Name:  name,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: &roundRobin{tenant: tenant}}),
		}),
	})
}

// roundRobin is the storage of a queue: first in, first out within a tenant. Its caller holds a lock.
type roundRobin struct {
	tenant  func(reconcile.Request) string
	waiting map[string][]reconcile.Request
	// turns are the tenants with waiting requests, the next one first.
	turns []string
	count int
}

// Touch implements workqueue.Queue.
func (*roundRobin) Touch(reconcile.Request) {}

// Len implements workqueue.Queue.
func (q *roundRobin) Len() int { return q.count }

// Push implements workqueue.Queue.
func (q *roundRobin) Push(request reconcile.Request) {
	if q.waiting == nil {
		q.waiting = map[string][]reconcile.Request{}
	}
	tenant := q.tenant(request)
	if len(q.waiting[tenant]) == 0 {
		q.turns = append(q.turns, tenant)
	}
	q.waiting[tenant] = append(q.waiting[tenant], request)
	q.count++
}

// Pop implements workqueue.Queue.
func (q *roundRobin) Pop() reconcile.Request {
	tenant := q.turns[0]
	requests := q.waiting[tenant]
	q.turns, q.count = q.turns[1:], q.count-1
	if len(requests) == 1 {
		delete(q.waiting, tenant)
	} else {
		q.waiting[tenant] = requests[1:]
		q.turns = append(q.turns, tenant)
	}
	return requests[0]
}

// sharedQueue hands out at most a share of the requests of one namespace at a time, because a tenant decides how long a write into its
// namespace takes. The requests beyond the share are set aside until one of the namespace is done.
type sharedQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]

	share int

	mu sync.Mutex
	// running is the number of requests in progress, and aside the requests that wait for them, by namespace.
	running map[string]int
	aside   map[string]*asideRequests
}

// asideRequests are requests in the order of their arrival within a priority, each once. The zero value is ready for use.
type asideRequests struct {
	known    map[reconcile.Request]place
	requests map[int]*list.List // of reconcile.Request, by priority
}

// place is where a request waits.
type place struct {
	priority int
	element  *list.Element
}

// add sets a request aside. One that waits already keeps the higher priority.
func (a *asideRequests) add(request reconcile.Request, priority int) {
	if a.known == nil {
		a.known, a.requests = map[reconcile.Request]place{}, map[int]*list.List{}
	}
	if known, waits := a.known[request]; waits {
		if known.priority >= priority {
			return
		}
		a.remove(request, known)
	}
	if a.requests[priority] == nil {
		a.requests[priority] = list.New()
	}
	a.known[request] = place{priority, a.requests[priority].PushBack(request)}
}

func (a *asideRequests) remove(request reconcile.Request, from place) {
	delete(a.known, request)
	requests := a.requests[from.priority]
	requests.Remove(from.element)
	if requests.Len() == 0 {
		delete(a.requests, from.priority)
	}
}

// take returns the most urgent request, which waits no longer. There is one.
func (a *asideRequests) take() (next reconcile.Request, priority int) {
	priority = slices.Max(slices.Collect(maps.Keys(a.requests)))
	next, _ = a.requests[priority].Front().Value.(reconcile.Request)
	a.remove(next, a.known[next])
	return next, priority
}

func newSharedQueue(queue priorityqueue.PriorityQueue[reconcile.Request], share int) *sharedQueue {
	return &sharedQueue{PriorityQueue: queue, share: share, running: map[string]int{}, aside: map[string]*asideRequests{}}
}

// Get implements workqueue.TypedInterface.
func (q *sharedQueue) Get() (request reconcile.Request, shutdown bool) {
	request, _, shutdown = q.GetWithPriority()
	return request, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *sharedQueue) GetWithPriority() (request reconcile.Request, priority int, shutdown bool) {
	for {
		request, priority, shutdown = q.PriorityQueue.GetWithPriority()
		if shutdown || q.begin(request, priority) {
			return request, priority, shutdown
		}
		q.PriorityQueue.Done(request)
	}
}

// begin reports whether the request is within the share of its namespace. If it is not, it is set aside.
func (q *sharedQueue) begin(request reconcile.Request, priority int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running[request.Namespace] < q.share {
		q.running[request.Namespace]++
		return true
	}
	aside := q.aside[request.Namespace]
	if aside == nil {
		aside = &asideRequests{}
		q.aside[request.Namespace] = aside
	}
	aside.add(request, priority)
	return false
}

// Done implements workqueue.TypedInterface.
func (q *sharedQueue) Done(request reconcile.Request) {
	q.PriorityQueue.Done(request)
	if next, priority, waits := q.end(request.Namespace); waits {
		q.PriorityQueue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, next)
	}
}

// end returns the most urgent request of the namespace that was set aside, if there is one.
func (q *sharedQueue) end(namespace string) (next reconcile.Request, priority int, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running[namespace]--
	if q.running[namespace] == 0 {
		delete(q.running, namespace)
	}
	aside := q.aside[namespace]
	if aside == nil {
		return reconcile.Request{}, 0, false
	}
	next, priority = aside.take()
	if len(aside.known) == 0 {
		delete(q.aside, namespace)
	}
	return next, priority, true
}
