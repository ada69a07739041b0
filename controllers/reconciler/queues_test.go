package reconciler

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestFor(namespace string, n int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(n)}}
}

// The one request of a neighbour is served after one of the tenant with thousands that came before it.
func TestRoundRobinQueue_Neighbour(t *testing.T) {
	queue := newRoundRobinQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](), RequestNamespace)
	defer queue.ShutDown()
	for n := range 1000 {
		queue.Add(requestFor("flood", n))
	}
	queue.Add(requestFor("neighbour", 0))
	queue.Add(requestFor("neighbour", 1))
	for _, want := range []reconcile.Request{
		requestFor("flood", 0), requestFor("neighbour", 0), requestFor("flood", 1), requestFor("neighbour", 1), requestFor("flood", 2), requestFor("flood", 3),
	} {
		got, _ := queue.Get()
		if got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		queue.Done(got)
	}
	if got := queue.Len(); got != 996 {
		t.Errorf("%d requests left, want 996", got)
	}
}

// A namespace whose requests do not end has its share of the workers, and a neighbour's request is served. What was set aside is served when
// one ends, the most urgent first, and once.
func TestSharedQueue_Neighbour(t *testing.T) {
	const share = 2
	queue := newSharedQueue(priorityqueue.New[reconcile.Request](""), share)
	defer queue.ShutDown()
	get := func(want reconcile.Request) {
		t.Helper()
		if got, _ := queue.Get(); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	for n := range 5 {
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, requestFor("slow", n))
	}
	get(requestFor("slow", 0))
	get(requestFor("slow", 1))
	queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(2 * handler.LowPriority)}, requestFor("neighbour", 0)) // after all others
	get(requestFor("neighbour", 0))

	queue.Add(requestFor("slow", 4)) // it is urgent now
	queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(2 * handler.LowPriority)}, requestFor("neighbour", 1))
	get(requestFor("neighbour", 1))
	queue.Done(requestFor("slow", 0))
	get(requestFor("slow", 4))
	queue.Done(requestFor("slow", 4))
	get(requestFor("slow", 2))
	queue.Done(requestFor("slow", 2))
	get(requestFor("slow", 3))
}

// A request that is in progress comes back after it, as from any queue of controllers.
func TestSharedQueue_AddedInProgress(t *testing.T) {
	queue := newSharedQueue(priorityqueue.New[reconcile.Request](""), 1)
	defer queue.ShutDown()
	queue.Add(requestFor("shops", 0))
	first, _ := queue.Get()
	queue.Add(first)
	queue.Done(first)
	if again, _ := queue.Get(); again != first {
		t.Errorf("got %s, want %s", again, first)
	}
}

// A request that becomes urgent while it is set aside waits at one place, however often that happens.
func TestSharedQueue_UrgentAgainAndAgain(t *testing.T) {
	queue := newSharedQueue(nil, 1)
	queue.begin(requestFor("slow", 0), 0)
	const changes = 100
	for range changes {
		queue.begin(requestFor("slow", 1), handler.LowPriority)
		queue.begin(requestFor("slow", 2), handler.LowPriority)
		queue.begin(requestFor("slow", 1), 0)
		next, priority, waits := queue.end("slow")
		if next != requestFor("slow", 1) || priority != 0 || !waits {
			t.Fatalf("next is %s with priority %d: %t", next, priority, waits)
		}
		queue.begin(next, priority)
	}
	var left []reconcile.Request
	for next, _, waits := queue.end("slow"); waits; next, _, waits = queue.end("slow") {
		left = append(left, next)
	}
	if !slices.Equal(left, []reconcile.Request{requestFor("slow", 2)}) {
		t.Errorf("%d requests are left: %v", len(left), left)
	}
}
