// Package await lets a test wait for what must come true, without sleeping and with a deadline.
package await

import (
	"testing"
	"time"
)

// interval is between two looks: short, for what is waited for takes milliseconds.
const interval = 5 * time.Millisecond

// Until looks again and again until holds is true, and fails t when it is not within the patience.
// what completes the sentence "waited in vain until …". Call it from the test's own goroutine.
func Until(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	Seeing(t, patience, what, func() (string, bool) { return "", holds() })
}

// Seeing is Until, and fails with what was seen last.
func Seeing(t testing.TB, patience time.Duration, what string, look func() (seen string, holds bool)) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		seen, holds := look()
		if holds {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("waited %s in vain until %s\n%s", patience, what, seen)
		case <-tick.C:
		}
	}
}
