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
	deadline := time.After(patience)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited %s in vain until %s", patience, what)
		case <-tick.C:
		}
	}
}
