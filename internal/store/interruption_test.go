package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

func TestScriptsAreForgottenInTheMiddleOfWork(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	c := client(t, server)
	asks := merchant()
	const callers, each = 8, 100
	var working sync.WaitGroup
	for caller := range callers {
		working.Go(func() {
			for i := range each {
				key, err := session.ParseIdempotencyKey(fmt.Sprintf("order-%d-%d", caller, i))
				if err != nil {
					t.Error(err)
					return
				}
				wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = key })
				if _, created, err := s.CreateSession(t.Context(), asks, wanted); err != nil || created.Replayed {
					t.Errorf("create: replayed %v, %v", created.Replayed, err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		working.Wait()
		close(done)
	}()
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
			if err := c.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, pattern := range []string{"*:session:*", "*:idem:*"} {
		if n := len(c.Keys(t.Context(), pattern).Val()); n != callers*each {
			t.Errorf("%s: %d keys, want %d", pattern, n, callers*each)
		}
	}
}

func TestACallerThatHasGoneDoesNoWork(t *testing.T) {
	s := open(t, shared.URL())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	asks := merchant()
	_, _, err := s.CreateSession(gone, asks, newSession())
	if !errors.Is(err, redis.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want ErrUnavailable because of the cancellation", err)
	}
	if keys := keysOf(t, asks, "session:*"); len(keys) != 0 {
		t.Error("a session was created")
	}
}
