package redis

import (
	"context"
	"errors"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// leaving is the context of a caller who leaves at the very moment at which it is called to lead: it looks at both together.
type leaving struct {
	context.Context

	called func()
}

func (c leaving) Done() <-chan struct{} {
	c.called()
	done := make(chan struct{})
	close(done)
	return done
}

func (c leaving) Err() error { return context.Canceled }

// A caller who has been called to lead and leaves passes that on, else nobody would ever use it again. Which of two
// things that are ready is taken is chance, so it is tried until both have been seen.
func TestALeaderWhoLeavesPassesOn(t *testing.T) {
	server := redistest.Start(t)
	c := openTo(t, server)
	c.pipeline.limit = 1
	if _, err := say(t.Context(), c, "PING"); err != nil {
		t.Fatal(err)
	}
	var left, led int64
	for range 64 {
		server.Pause()
		first, next, leader := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { first <- second(say(t.Context(), c, "PING")) }()
		waitFor(t, c, 0)
		resumed := make(chan struct{})
		isCalled := func() {
			<-resumed
			await.Until(t, patience, "the leader is called", func() bool {
				c.pipeline.mu.Lock()
				defer c.pipeline.mu.Unlock()
				return len(c.pipeline.waiting) < 2
			})
		}
		go func() { leader <- second(say(leaving{t.Context(), isCalled}, c, "INCR", "led")) }()
		waitFor(t, c, 1)
		go func() { next <- second(say(t.Context(), c, "INCR", "next")) }()
		waitFor(t, c, 2)
		server.Resume()
		close(resumed)
		for name, answered := range map[string]chan error{"the first": first, "who waited behind the leader": next} {
			if err := <-answered; err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		switch err := <-leader; {
		case err == nil:
			led++
		case errors.Is(err, context.Canceled):
			left++
		default:
			t.Fatal(err)
		}
		checkIdle(t, c)
	}
	if left == 0 || led == 0 {
		t.Errorf("%d left and %d led, want some of both", left, led)
	}
	if sent, err := c.client.Get(t.Context(), "led").Int64(); err != nil || sent != led {
		t.Errorf("%d commands of leaders were sent, want those of the %d who stayed: %v", sent, led, err)
	}
}

func second[T any](_ T, err error) error { return err }
