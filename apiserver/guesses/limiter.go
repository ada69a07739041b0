package guesses

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
)

// maxSubscribers is how many addresses each of the two halves of a memory holds, which is a few MB in all.
const maxSubscribers = 1 << 15

// groups are what subscribers are divided into at random, so that one who waits slows hardly anybody down.
const groups = 1 << 12

// Limiter counts wrong keys by who presents them, as clientaddr.Subscriber says. It is safe for concurrent use. A nil Limiter
// limits nobody.
type Limiter struct {
	policy ratelimit.Policy
	now    func() time.Time
	since  time.Time

	// latest is the latest paidUntil that any subscriber of the group ever had, in nanoseconds after since. Every request asks
	// for a Wait, nearly all for nothing: this tells them so without a lock.
	latest [groups]atomic.Int64
	seed   maphash.Seed

	mu sync.Mutex
	// paidUntil is the time by which a subscriber's guesses are paid for (GCRA). When the young half is full it becomes
	// the old one, and what was in that is forgotten: whoever commands so many addresses guesses on, as with any
	// limit by address, and nobody's memory ends.
	young, old map[netip.Addr]time.Time
}

// New returns a Limiter for the policy.
func New(policy ratelimit.Policy, now func() time.Time) *Limiter {
	return &Limiter{policy: policy, now: now, since: now(), seed: maphash.MakeSeed(), young: map[netip.Addr]time.Time{}}
}

// Wait returns how long nothing of the subscriber's will be looked at; zero: the next key will be.
func (l *Limiter) Wait(subscriber netip.Addr) time.Duration {
	if l == nil {
		return 0
	}
	latest := l.group(subscriber).Load()
	if latest == 0 {
		return 0
	}
	now := l.now()
	if l.wait(l.since.Add(time.Duration(latest)), now) == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	paidUntil := l.paidUntil(subscriber)
	if paidUntil.Sub(now) > l.policy.Window() {
		return 0 // nobody can owe so much: the clock was set back, and would shut the address out for as long
	}
	return l.wait(paidUntil, now)
}

// Wrong counts a key of the subscriber's that was not accepted.
func (l *Limiter) Wrong(subscriber netip.Addr) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	// What was under way together may come to more than a burst. Nobody owes more than that.
	backlog := min(max(0, l.paidUntil(subscriber).Sub(now))+l.policy.Interval(), l.policy.Window())
	if _, known := l.young[subscriber]; !known && len(l.young) >= maxSubscribers {
		l.young, l.old = map[netip.Addr]time.Time{}, l.young
	}
	paidUntil := now.Add(backlog)
	l.young[subscriber] = paidUntil
	latest := l.group(subscriber)
	latest.Store(max(latest.Load(), int64(paidUntil.Sub(l.since)))) // nobody else stores, for the lock is held
}

func (l *Limiter) group(subscriber netip.Addr) *atomic.Int64 {
	return &l.latest[maphash.Comparable(l.seed, subscriber)%groups]
}

// wait is how long a subscriber must whose guesses are paid for by that time.
func (l *Limiter) wait(paidUntil, now time.Time) time.Duration {
	return max(0, max(0, paidUntil.Sub(now))+l.policy.Interval()-l.policy.Window())
}

func (l *Limiter) paidUntil(subscriber netip.Addr) time.Time {
	if paidUntil, known := l.young[subscriber]; known {
		return paidUntil
	}
	return l.old[subscriber]
}
