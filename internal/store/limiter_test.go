package store_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

func limited(limit ratelimit.Policy) store.Admission {
	return with(merchant(), func(a *store.Admission) { a.Limit = limit })
}

// What is told must agree with the clock of Redis, whatever the machine's speed: one request comes
// back per second.
func TestABurstPassesAndNotOneMore(t *testing.T) {
	s := open(t, shared.URL())
	asks := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: 600})
	first, err := s.Admit(t.Context(), asks)
	if err != nil {
		t.Fatal(err)
	}
	passed := int64(1)
	for {
		admitted, err := s.Admit(t.Context(), asks)
		elapsed := admitted.Now.Sub(first.Now)
		backlog := time.Duration(passed)*time.Second - elapsed
		if errors.Is(err, store.ErrRateLimited) {
			if admitted.Remaining != 0 || admitted.Reset != backlog || admitted.RetryAfter != backlog-599*time.Second {
				t.Errorf("refused: %+v after %s, want reset %s", admitted.Quota, elapsed, backlog)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		passed++
		if backlog += time.Second; admitted.Reset != backlog || admitted.RetryAfter != 0 ||
			admitted.Remaining != int64((600*time.Second-backlog)/time.Second) {
			t.Fatalf("request %d: %+v after %s, want reset %s", passed, admitted.Quota, elapsed, backlog)
		}
		if passed > 600+int64(elapsed/time.Second) {
			t.Fatalf("%d requests passed in %s", passed, elapsed)
		}
	}
	if passed < 600 {
		t.Errorf("%d requests of a burst of 600 passed", passed)
	}
}

func TestARefusedCallerPassesOnceItHasWaited(t *testing.T) {
	s := open(t, shared.URL())
	asks := limited(ratelimit.Policy{RequestsPerSecond: 20, Burst: 2})
	for range 3 { // three times over the limit and back
		var refused store.Admitted
		eventually(t, "the limit is reached", func() bool {
			admitted, err := s.Admit(t.Context(), asks)
			refused = admitted
			return errors.Is(err, store.ErrRateLimited)
		})
		if refused.RetryAfter <= 0 || refused.RetryAfter > 50*time.Millisecond {
			t.Fatalf("retry after %s at 20 requests per second", refused.RetryAfter)
		}
		eventually(t, "a request passes again", func() bool {
			admitted, err := s.Admit(t.Context(), asks)
			waited := admitted.Now.Sub(refused.Now)
			if passed := err == nil; passed != (waited >= refused.RetryAfter) {
				t.Fatalf("told to wait %s, waited %s, passed: %v", refused.RetryAfter, waited, passed)
			}
			return err == nil
		})
	}
}

// The promise to the platform, under concurrency over two replicas: in any stretch of time by the clock
// of Redis, no more than the burst and the rate times the stretch pass.
func TestNeverMoreThanBurstAndRatePass(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	rapid.Check(t, func(t *rapid.T) {
		limit := ratelimit.Policy{
			RequestsPerSecond: rapid.Int64Range(1, 10_000).Draw(t, "rate"), Burst: rapid.Int64Range(1, 40).Draw(t, "burst"),
		}
		asks := limited(limit)
		var mu sync.Mutex
		var first, last time.Time
		passed := int64(0)
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() {
				for range 30 {
					admitted, err := replicas[i%2].Admit(t.Context(), asks)
					if errors.Is(err, store.ErrRateLimited) {
						continue
					}
					mu.Lock()
					if err != nil {
						t.Error(err)
					}
					passed++
					if first.IsZero() || admitted.Now.Before(first) {
						first = admitted.Now
					}
					if admitted.Now.After(last) {
						last = admitted.Now
					}
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		if most := limit.Burst + int64(last.Sub(first)/limit.Interval()); passed > most {
			t.Fatalf("%+v: %d passed in %s, at most %d may", limit, passed, last.Sub(first), most)
		}
		if least := min(limit.Burst, 120); passed < least {
			t.Fatalf("%+v: %d passed, and a burst of %d must", limit, passed, least)
		}
	})
}
