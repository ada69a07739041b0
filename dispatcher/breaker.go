package dispatcher

import "time"

// How a breaker opens.
const (
	// breakAfter is how many attempts must fail in a row.
	breakAfter = 5
	// firstBreak is how long it stays open first, and twice as long each time, up to longestBreak.
	firstBreak   = 5 * time.Second
	longestBreak = time.Minute
)

// breaker keeps attempts from an endpoint that does nothing but fail. The zero breaker is closed. After a break one
// attempt at a time finds out whether the endpoint is back. It knows one dispatcher's attempts only: what several must
// agree on is in Redis.
type breaker struct {
	failures  int // in a row
	openUntil time.Time
}

// wait is how long no attempt may start yet.
func (b *breaker) wait(now time.Time) time.Duration { return max(0, b.openUntil.Sub(now)) }

// suspicious reports whether the last attempt failed. Then one at a time is enough.
func (b *breaker) suspicious() bool { return b.failures > 0 }

func (b *breaker) succeeded() { *b = breaker{} }

// failed counts a failure and reports whether the breaker is open now.
func (b *breaker) failed(now time.Time) bool {
	b.failures++
	if b.failures < breakAfter {
		return false
	}
	pause := longestBreak
	if doublings := b.failures - breakAfter; doublings < 4 {
		pause = min(longestBreak, firstBreak<<doublings)
	}
	b.openUntil = now.Add(pause)
	return true
}
