package reconciler

import (
	"testing"
	"time"
)

// The first rotations happen at once, however long ago the last one was. Then there is one in a minute.
func TestTriggerLimit(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var tat time.Time
	rotate := func() bool {
		limit := NewTriggerLimit(tat, now)
		if limit.At.IsZero() {
			tat = limit.TAT
		}
		return limit.At.IsZero()
	}
	made := 0
	for rotate() {
		made++
	}
	if made != triggerBurst {
		t.Errorf("%d rotations at once, want %d", made, triggerBurst)
	}
	if at, want := NewTriggerLimit(tat, now).At, now.Add(triggerInterval); !at.Equal(want) {
		t.Errorf("the next one is at %s, want %s", at, want)
	}
	for end := now.Add(time.Hour); now.Before(end); now = now.Add(7 * time.Second) {
		if rotate() {
			made++
		}
	}
	if most := triggerBurst + int(time.Hour/triggerInterval); made > most || made < most-5 {
		t.Errorf("%d rotations within an hour of trying, want about %d", made, most)
	}
	now = now.Add(triggerBurst * triggerInterval)
	for n := range triggerBurst {
		if !rotate() {
			t.Errorf("rotation %d after a pause is deferred", n)
		}
	}
}

// A rotation by an operator whose clock was ahead defers none that comes when the clock is right again.
func TestTriggerLimit_ClockSetBack(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, ahead := range []time.Duration{20 * time.Minute, time.Hour, 24 * time.Hour} {
		tat, due := NewTriggerLimit(time.Time{}, now.Add(ahead)).TAT, now
		for limit := NewTriggerLimit(tat, due); !limit.At.IsZero() && due.Before(now.Add(ahead)); limit = NewTriggerLimit(tat, due) {
			due = limit.At
		}
		if wait := due.Sub(now); wait > triggerInterval {
			t.Errorf("%s ahead: waits %s", ahead, wait)
		}
	}
}
