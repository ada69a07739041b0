package web

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Inflight bounds the requests in progress that take long or much memory: of all tenants, of each tenant and of each
// person. A tenant is a namespace; of strangers it is their network, and a person is a client address.
//
// A tenant may take as many places as are left when it has them: one alone has half of all places, two a third each. So
// there is room for another tenant, however many people a tenant has, until several tenants take all they can: five fill
// 16 places. Inflight is safe for concurrent use.
type Inflight struct {
	most, mostOfPerson int
	errTooMany         error

	mu       sync.Mutex
	byPerson map[string]*person // who has a request, or waits for one to begin
	open     int
	byTenant map[string]int
	waiting  []*waiter // for a place, in the order in which they came; none of them may have one now
}

// person is somebody with requests.
type person struct {
	requests *semaphore.Weighted
	users    int // of this struct
}

// waiter is a request that waits for a place of one of its tenants.
type waiter struct {
	tenants  []string
	tenant   string        // whose place it has, when it is admitted
	admitted chan struct{} // is closed
}

// NewInflight returns a bound of so many requests, and so many of one person. errTooMany is the error of one more.
func NewInflight(most, mostOfPerson int, errTooMany error) *Inflight {
	return &Inflight{
		most: most, mostOfPerson: mostOfPerson, errTooMany: errTooMany, byPerson: map[string]*person{}, byTenant: map[string]int{},
	}
}

// Begin admits a request of a person about a tenant, which ends with end. The error says that there are too many.
func (i *Inflight) Begin(name, tenant string) (end func(), err error) {
	return i.begin(name, func(own *semaphore.Weighted) bool { return own.TryAcquire(1) }, func() (string, bool) {
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.take([]string{tenant})
	})
}

// Await is Begin, and waits until ctx ends for others to end. Requests of a tenant begin in the order in which they came.
// Above the bound of their person they wait for requests of that person only, and above the share of their tenant for
// requests of that tenant, so whoever sends many is in nobody's way. A request about several tenants has a place of any of them.
func (i *Inflight) Await(ctx context.Context, name string, tenants ...string) (end func(), err error) {
	return i.begin(name, func(own *semaphore.Weighted) bool { return own.Acquire(ctx, 1) == nil }, func() (string, bool) {
		return i.awaitPlace(ctx, tenants)
	})
}

func (i *Inflight) begin(name string, ofPerson func(*semaphore.Weighted) bool, place func() (tenant string, ok bool)) (end func(), err error) {
	own := i.enter(name)
	if !ofPerson(own.requests) {
		i.leave(name)
		return nil, i.errTooMany
	}
	tenant, ok := place()
	if !ok {
		own.requests.Release(1)
		i.leave(name)
		return nil, i.errTooMany
	}
	return func() {
		i.release(tenant)
		own.requests.Release(1)
		i.leave(name)
	}, nil
}

// take takes a place for the first of the tenants that may have one more. i.mu is held.
func (i *Inflight) take(tenants []string) (tenant string, ok bool) {
	left := i.most - i.open
	for _, tenant := range tenants {
		if i.byTenant[tenant] < left {
			i.open++
			i.byTenant[tenant]++
			return tenant, true
		}
	}
	return "", false
}

// awaitPlace is take, and waits for a place until ctx ends.
func (i *Inflight) awaitPlace(ctx context.Context, tenants []string) (tenant string, ok bool) {
	i.mu.Lock()
	if tenant, ok = i.take(tenants); ok {
		i.mu.Unlock()
		return tenant, true
	}
	own := &waiter{tenants: tenants, admitted: make(chan struct{})}
	i.waiting = append(i.waiting, own)
	i.mu.Unlock()
	select {
	case <-own.admitted:
		return own.tenant, true
	case <-ctx.Done():
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.Index(i.waiting, own)
	if at < 0 { // admitted at that moment
		return own.tenant, true
	}
	i.waiting = slices.Delete(i.waiting, at, at+1)
	return "", false
}

// release gives a place back, and admits those who wait and may have one now.
func (i *Inflight) release(tenant string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open--
	i.byTenant[tenant]--
	if i.byTenant[tenant] == 0 {
		delete(i.byTenant, tenant)
	}
	i.waiting = slices.DeleteFunc(i.waiting, func(next *waiter) bool {
		var ok bool
		if next.tenant, ok = i.take(next.tenants); !ok {
			return false
		}
		close(next.admitted)
		return true
	})
}

func (i *Inflight) enter(name string) *person {
	i.mu.Lock()
	defer i.mu.Unlock()
	own := i.byPerson[name]
	if own == nil {
		own = &person{requests: semaphore.NewWeighted(int64(i.mostOfPerson))}
		i.byPerson[name] = own
	}
	own.users++
	return own
}

func (i *Inflight) leave(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	own := i.byPerson[name]
	own.users--
	if own.users == 0 {
		delete(i.byPerson, name)
	}
}
