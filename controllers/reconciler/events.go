package reconciler

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/controllers/conditions"
)

// Emit records an event of type Normal, if there is room.
func (b *Base) Emit(object client.Object, reason, action, format string, args ...any) {
	b.event(object, corev1.EventTypeNormal, reason, action, fmt.Sprintf(format, args...))
}

// Warn records an event of type Warning, if there is room.
func (b *Base) Warn(object client.Object, reason, action, format string, args ...any) {
	b.event(object, corev1.EventTypeWarning, reason, action, fmt.Sprintf(format, args...))
}

// event records an event, with as much of the note as the API server accepts.
func (b *Base) event(object client.Object, eventType, reason, action, note string) {
	if b.events.admit(object.GetNamespace(), eventType, b.Clock.Now()) {
		b.Events.Eventf(object, nil, eventType, reason, action, "%s", conditions.Cut(note))
	}
}

const (
	// eventsBurst and eventsPerSecond bound the events of each type in a namespace.
	eventsBurst, eventsPerSecond = 50, 1
	// allEventsBurst and allEventsPerSecond bound the events of all namespaces. client-go begins a goroutine for each event, and remembers it
	// for up to 12 minutes by the version of its object: 8,000 events, of 2 to 3 KiB.
	allEventsBurst, allEventsPerSecond = 500, 10
)

// eventBudgets bound the number of events: a tenant decides how often its objects change, and so how many events there are. An event more than
// that is dropped. Warnings have a budget of their own, which no number of Normal events uses up. The zero value is ready for use.
type eventBudgets struct {
	begin  sync.Once
	each   budgets[eventSource]
	common *rate.Limiter
}

// eventSource is what has a budget.
type eventSource struct{ namespace, eventType string }

// admit reports whether there is room for an event. One of a namespace without room costs the others nothing.
func (e *eventBudgets) admit(namespace, eventType string, now time.Time) bool {
	e.begin.Do(func() {
		e.each = newBudgets[eventSource](eventsPerSecond, eventsBurst)
		e.common = rate.NewLimiter(allEventsPerSecond, allEventsBurst)
	})
	return e.each.of(eventSource{namespace, eventType}).AllowN(now, 1) && e.common.AllowN(now, 1)
}

// maxBudgets is how many tenants have a budget; one that is forgotten begins anew.
const maxBudgets = 1000

// budgets are token buckets, one for each tenant.
type budgets[Tenant comparable] struct {
	limit rate.Limit
	burst int
	known *lru.Cache // of *rate.Limiter, by tenant
}

func newBudgets[Tenant comparable](limit rate.Limit, burst int) budgets[Tenant] {
	return budgets[Tenant]{limit, burst, lru.New(maxBudgets)}
}

// of returns the budget of a tenant.
func (b budgets[Tenant]) of(tenant Tenant) *rate.Limiter {
	known, _ := b.known.Get(tenant)
	budget, ok := known.(*rate.Limiter)
	if !ok {
		budget = rate.NewLimiter(b.limit, b.burst)
		b.known.Add(tenant, budget)
	}
	return budget
}
