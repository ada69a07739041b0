package web

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Inflight bounds the requests in progress that take long or much memory: of all people, and of each person. It is
// safe for concurrent use.
type Inflight struct {
	all          *semaphore.Weighted
	mostOfPerson int64
	errTooMany   error

	mu       sync.Mutex
	byPerson map[string]*person // who has a request, or waits for one to begin
}

// person is somebody with requests.
type person struct {
	requests *semaphore.Weighted
	users    int // of this struct
}

// NewInflight returns a bound of so many requests, and so many of one person. errTooMany is the error of one more.
func NewInflight(most, mostOfPerson int64, errTooMany error) *Inflight {
	return &Inflight{
		all: semaphore.NewWeighted(most), mostOfPerson: mostOfPerson, errTooMany: errTooMany, byPerson: map[string]*person{},
	}
}

// Begin admits a request, which ends with end. The error says that there are too many.
func (i *Inflight) Begin(name string) (end func(), err error) {
	return i.begin(name, func(requests *semaphore.Weighted) bool { return requests.TryAcquire(1) })
}

// Await is Begin, and waits until ctx ends for others to end. Requests begin in the order in which they came. Above
// the bound of their person they wait for requests of that person only, so whoever sends many is in nobody's way.
func (i *Inflight) Await(ctx context.Context, name string) (end func(), err error) {
	return i.begin(name, func(requests *semaphore.Weighted) bool { return requests.Acquire(ctx, 1) == nil })
}

func (i *Inflight) begin(name string, acquire func(*semaphore.Weighted) bool) (end func(), err error) {
	own := i.enter(name)
	if !acquire(own.requests) {
		i.leave(name)
		return nil, i.errTooMany
	}
	if !acquire(i.all) {
		own.requests.Release(1)
		i.leave(name)
		return nil, i.errTooMany
	}
	return func() {
		i.all.Release(1)
		own.requests.Release(1)
		i.leave(name)
	}, nil
}

func (i *Inflight) enter(name string) *person {
	i.mu.Lock()
	defer i.mu.Unlock()
	own := i.byPerson[name]
	if own == nil {
		own = &person{requests: semaphore.NewWeighted(i.mostOfPerson)}
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
