package ratelimit

import (
	"sync"
	"time"
)

// maxCallers is the number of callers in each of the two generations of a Limiter: about 100 bytes each.
const maxCallers = 1 << 14

// Limiter limits callers in the memory of this process, before they cost Redis anything. Its memory is limited: under a flood of
// new callers it forgets those that were admitted longest ago. It is safe for concurrent use.
type Limiter struct {
	policy Policy
	now    func() time.Time

	mu sync.Mutex
	// young and old are the theoretical arrival times of callers. When young is full it replaces old.
	young, old map[string]time.Time
}

// NewLimiter returns a Limiter without any caller.
func NewLimiter(policy Policy, now func() time.Time) *Limiter {
	return &Limiter{policy: policy, now: now, young: map[string]time.Time{}}
}

// Allow charges the caller for a request. It reports false, and charges nothing, over the limit.
func (l *Limiter) Allow(caller string) (Quota, bool) {
	backlog, allowed := l.add(caller, l.policy.Interval())
	if !allowed {
		return l.policy.Refused(backlog), false
	}
	return l.policy.Admitted(backlog), true
}

// Refund reverts the charge of a request.
func (l *Limiter) Refund(caller string) { l.add(caller, -l.policy.Interval()) }

func (l *Limiter) add(caller string, cost time.Duration) (backlog time.Duration, added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	before, known := l.young[caller]
	if !known {
		before = l.old[caller]
	}
	backlog = max(0, before.Sub(now))
	if backlog+cost > l.policy.Window() {
		return backlog, false
	}
	if !known && len(l.young) >= maxCallers {
		l.young, l.old = map[string]time.Time{}, l.young
	}
	l.young[caller] = now.Add(backlog + cost)
	return backlog + cost, true
}
