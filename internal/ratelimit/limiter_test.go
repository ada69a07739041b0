package ratelimit

import (
	"strconv"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	clock := time.Unix(0, 0)
	limiter := NewLimiter(Policy{RequestsPerSecond: 2, Burst: 3}, func() time.Time { return clock })
	allow := func(caller string, want bool, retryAfter time.Duration) {
		t.Helper()
		if quota, allowed := limiter.Allow(caller); allowed != want || quota.RetryAfter != retryAfter {
			t.Errorf("%s at %s: allowed %v, retry after %s", caller, clock, allowed, quota.RetryAfter)
		}
	}
	for range 3 {
		allow("a", true, 0)
	}
	for range 100 { // a refused request is not charged
		allow("a", false, 500*time.Millisecond)
	}
	allow("b", true, 0)
	clock = clock.Add(500 * time.Millisecond)
	allow("a", true, 0)
	allow("a", false, 500*time.Millisecond)
	limiter.Refund("a")
	allow("a", true, 0)
	clock = clock.Add(time.Hour)
	for range 3 {
		allow("a", true, 0)
	}
	allow("a", false, 500*time.Millisecond)
}

// Who floods stays limited while others come and go, and the memory does not grow with them.
func TestLimiter_Forgets(t *testing.T) {
	clock := time.Unix(0, 0)
	limiter := NewLimiter(Policy{RequestsPerSecond: 1, Burst: 1}, func() time.Time { return clock })
	limiter.Allow("flood")
	for i := range 5 * maxCallers {
		limiter.Allow(strconv.Itoa(i))
		if i == maxCallers {
			if _, allowed := limiter.Allow("flood"); allowed {
				t.Error("a caller is forgotten too soon")
			}
		}
	}
	if held := len(limiter.young) + len(limiter.old); held > 2*maxCallers {
		t.Errorf("%d callers are held", held)
	}
}
