package guesses

import (
	"net/netip"
	"testing"
	"time"
)

// guess guesses until the address is shut out, and returns how often.
func guess(t *testing.T, l *Limiter, by netip.Addr) (guesses int) {
	t.Helper()
	for ; l.Wait(by) == 0; guesses++ {
		if guesses > 100 {
			t.Fatal("nothing stops a guesser")
		}
		l.Wrong(by)
	}
	return guesses
}

// A clock that jumps gives a guesser one burst more at most, and shuts nobody out for longer than a burst is paid for.
func TestTheClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 200 * time.Millisecond, -200 * time.Millisecond} {
		l, c := newLimiter()
		guess(t, l, guesser)
		c.at = c.at.Add(jump)
		if wait := l.Wait(other); wait != 0 {
			t.Errorf("%s: an address that never guessed must wait %s", jump, wait)
		}
		if more := guess(t, l, guesser); more > 3 {
			t.Errorf("%s: %d guesses more, want a burst at most", jump, more)
		}
		c.at = c.at.Add(600 * time.Millisecond) // twice what a burst takes
		if wait := l.Wait(guesser); wait != 0 {
			t.Errorf("%s: the address is shut out for %s more", jump, wait)
		}
	}
}
