package store_test

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/store"
)

// What Redis holds of a key's last use must never be older than a minute, however often the minutes change.
func TestTheLastUseIsWrittenOnceAMinute(t *testing.T) {
	uses, now := store.NewLastUses(), time.Unix(1_800_000_000, 0)
	var written time.Time
	writes := 0
	for range 1000 {
		if uses.Due("key", now) {
			uses.Wrote("key")
			written = now
			writes++
		}
		if !uses.Due("rejected", now) {
			t.Fatal("asking alone takes the use for written")
		}
		if now.Sub(written) > time.Minute {
			t.Fatalf("at %s the last use is that of %s ago", now, now.Sub(written))
		}
		now = now.Add(700 * time.Millisecond)
	}
	if writes > 13 { // 700 s
		t.Errorf("%d writes in 700 s", writes)
	}
}

// Keys that are not used any more are forgotten.
func TestTheKeysOfPastMinutesAreForgotten(t *testing.T) {
	uses, now := store.NewLastUses(), time.Unix(1_800_000_000, 0)
	uses.Due("a", now)
	uses.Wrote("a")
	uses.Due("b", now.Add(time.Minute))
	if n := uses.Remembered(); n != 0 {
		t.Errorf("%d keys are remembered", n)
	}
}
