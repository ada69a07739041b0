package payer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/await"
)

// crowd fills the places of a queue, and has so many more payers wait, whose errors the channel gets.
func crowd(t *testing.T, q *serverQueue, waiting int) <-chan error {
	t.Helper()
	for range cap(q.places) {
		if err := q.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	entered := make(chan error, waiting)
	for i := range waiting {
		go func() { entered <- q.enter(t.Context()) }()
		q.wantWaiting(t, i+1)
	}
	return entered
}

func (q *serverQueue) wantWaiting(t *testing.T, want int) {
	t.Helper()
	await.Until(t, 20*time.Second, fmt.Sprint(want, " payers wait"), func() bool {
		q.all.mu.Lock()
		defer q.all.mu.Unlock()
		return q.all.waiting == want
	})
}

// However many payers come, only some are served at a time, and each of the others in turn.
func TestQueue_Crowd(t *testing.T) {
	q := newQueues(2000, false, prometheus.NewRegistry()).to("")
	entered := crowd(t, q, 500)
	for left := 499; left >= 0; left-- {
		q.leave(nil)
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		q.wantWaiting(t, left)
	}
	if served := len(q.places); served != payersServed {
		t.Errorf("%d payers are served at a time, want %d", served, payersServed)
	}
}

// Nobody waits for a Redis that does not answer: the error of one read is that of all who wait.
func TestQueue_Outage(t *testing.T) {
	q := newQueues(2000, false, prometheus.NewRegistry()).to("")
	entered := crowd(t, q, 200)
	q.leave(fmt.Errorf("read: %w", redis.ErrUnavailable))
	unavailable := 0
	for range 200 {
		if err := <-entered; errors.Is(err, redis.ErrUnavailable) {
			unavailable++
		} else if err != nil {
			t.Error(err)
		}
	}
	if unavailable < 199 { // one may have taken the place
		t.Errorf("%d of 200 payers got the error at once, want all", unavailable)
	}
}

// A server that does not answer empties its own queue: who waits for another one is served.
func TestQueue_OutageOfOneServer(t *testing.T) {
	all := newQueues(2000, true, prometheus.NewRegistry())
	gone, healthy := all.to("gone"), all.to("healthy")
	if all.to("gone") != gone || gone == healthy {
		t.Fatal("want one queue to each server")
	}
	entered := crowd(t, healthy, 100)
	for range payersServedClustered { // who is served by one server takes no place of another
		if err := gone.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refused := make(chan error)
	go func() { refused <- gone.enter(t.Context()) }()
	healthy.wantWaiting(t, 101)
	for range payersServedClustered {
		gone.leave(fmt.Errorf("read: %w", redis.ErrUnavailable))
	}
	if err := <-refused; err != nil && !errors.Is(err, redis.ErrUnavailable) {
		t.Error(err)
	}
	healthy.wantWaiting(t, 100)
	for range 100 {
		healthy.leave(nil)
		if err := <-entered; err != nil {
			t.Errorf("a payer of the healthy server: %v", err)
		}
	}
}

// Half of the connections are left for tills: a payer beyond the other half is refused at once.
func TestQueue_Full(t *testing.T) {
	q := newQueues(20, false, prometheus.NewRegistry()).to("")
	entered := crowd(t, q, 10)
	if err := q.enter(t.Context()); !errors.Is(err, ErrCrowded) {
		t.Errorf("the eleventh who waits: %v, want ErrCrowded", err)
	}
	for range 10 {
		q.leave(nil)
		if err := <-entered; err != nil {
			t.Error(err)
		}
	}
}

// Payers who wait for a server that is gone leave room for payers of another server.
func TestQueue_FullOfOneServer(t *testing.T) {
	all := newQueues(40, true, prometheus.NewRegistry())
	gone, healthy := all.to("gone"), all.to("healthy")
	entered := crowd(t, gone, 10)
	if err := gone.enter(t.Context()); !errors.Is(err, ErrCrowded) {
		t.Errorf("the eleventh who waits for the server that is gone: %v, want ErrCrowded", err)
	}
	for range payersServedClustered {
		if err := healthy.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	served := make(chan error)
	go func() { served <- healthy.enter(t.Context()) }()
	healthy.wantWaiting(t, 11)
	healthy.leave(nil)
	if err := <-served; err != nil {
		t.Errorf("a payer of the healthy server: %v", err)
	}
	for range 10 {
		gone.leave(nil)
		if err := <-entered; err != nil {
			t.Error(err)
		}
	}
}

// A client that leaves during its read costs nobody else an answer: it was no outage.
func TestQueue_ServedClientLeaves(t *testing.T) {
	q := newQueues(20, false, prometheus.NewRegistry()).to("")
	entered := crowd(t, q, 3)
	q.leave(fmt.Errorf("%w: %w", redis.ErrUnavailable, context.Canceled))
	for range 2 {
		q.leave(nil)
	}
	for range 3 {
		if err := <-entered; err != nil {
			t.Errorf("a payer behind a client that left: %v", err)
		}
	}
}

func TestQueue_ClientLeaves(t *testing.T) {
	q := newQueues(20, false, prometheus.NewRegistry()).to("")
	entered := crowd(t, q, 1)
	ctx, leave := context.WithCancel(t.Context())
	var left sync.WaitGroup
	left.Go(func() {
		if err := q.enter(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that left: %v, want context.Canceled", err)
		}
	})
	q.wantWaiting(t, 2)
	leave()
	left.Wait()
	q.wantWaiting(t, 1)
	q.leave(nil)
	if err := <-entered; err != nil {
		t.Error(err)
	}
}
