package guesses

import (
	"net/netip"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
)

// maxSubscribers is how many addresses each of the two halves of a memory holds, which is a few MB in all.
const maxSubscribers = 1 << 15

// Limiter counts wrong keys by who presents them, as clientaddr.Subscriber says. It is safe for concurrent use. A nil Limiter
// limits nobody.
type Limiter struct {
	policy ratelimit.Policy
	now    func() time.Time

	mu sync.Mutex
	// paidUntil is the time by which a subscriber's guesses are paid for (GCRA). When the young half is full it becomes
	// the old one, and what was in that is forgotten: whoever commands so many addresses guesses on, as with any
	// limit by address, and nobody's memory ends.
	young, old map[netip.Addr]time.Time
}

// New returns a Limiter for the policy.
func New(policy ratelimit.Policy, now func() time.Time) *Limiter {
	return &Limiter{policy: policy, now: now, young: map[netip.Addr]time.Time{}}
}

// Wait returns how long nothing of the subscriber's will be looked at; zero: the next key will be.
func (l *Limiter) Wait(subscriber netip.Addr) time.Duration {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.backlog(subscriber)+l.policy.Interval()-l.policy.Window())
}

// Wrong counts a key of the subscriber's that was not accepted.
func (l *Limiter) Wrong(subscriber netip.Addr) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// What was under way together may come to more than a burst. Nobody owes more than that.
	backlog := min(l.backlog(subscriber)+l.policy.Interval(), l.policy.Window())
	if _, known := l.young[subscriber]; !known && len(l.young) >= maxSubscribers {
		l.young, l.old = map[netip.Addr]time.Time{}, l.young
	}
	l.young[subscriber] = l.now().Add(backlog)
}

// backlog is how far the time lies ahead by which the subscriber's guesses are paid for.
func (l *Limiter) backlog(subscriber netip.Addr) time.Duration {
	paidUntil, known := l.young[subscriber]
	if !known {
		paidUntil = l.old[subscriber]
	}
	return max(0, paidUntil.Sub(l.now()))
}
