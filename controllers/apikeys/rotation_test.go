package apikeys

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The schedule spreads keys over a tenth of the interval.
func TestSchedule_Spread(t *testing.T) {
	const every, keys, parts = 90 * 24 * time.Hour, 10000, 100
	var share [parts]int
	due := now.Add(every)
	for i := range keys {
		uid := types.UID("uid-" + strconv.Itoa(i))
		ahead := due.Sub(slotBefore(due, every, uid))
		if ahead < 0 || ahead >= every/10 {
			t.Fatalf("%s ahead of an interval of %s", ahead, every)
		}
		share[ahead*parts/(every/10)]++
	}
	for part, n := range share {
		if n < keys/parts/2 || n > keys/parts*2 {
			t.Errorf("%d of %d keys rotate in part %d of %d", n, keys, part, parts)
		}
	}
}

// Each rotation comes late by a while; the lateness must not move the following ones.
func TestSchedule_Drift(t *testing.T) {
	f := upToDate()
	const every = 24 * time.Hour
	f.apiKey.Spec.Rotation.EverySeconds = new(int32(every / time.Second))
	first, _ := nextRotation(f)
	for n := range 1000 {
		due, _ := nextRotation(f)
		if want := first.Add(time.Duration(n) * every); !due.Equal(want) {
			t.Fatalf("rotation %d is due at %s, want %s", n, due, want)
		}
		f.record.LastRotation.Time = due.Add(time.Duration(n) * time.Second) // late by up to 17 minutes
	}
}

// After a downtime there is one rotation.
func TestSchedule_Downtime(t *testing.T) {
	f := upToDate()
	f.apiKey.Spec.Rotation.EverySeconds = new(int32(3600))
	f.now = now.Add(100 * time.Hour)
	if decide(f).newKey == nil {
		t.Fatal("no rotation although a hundred were missed")
	}
	f.record.LastRotation.Time = f.now
	if decide(f).newKey != nil {
		t.Error("another rotation right after it")
	}
}

// The longest schedule does not overflow.
func TestSchedule_Longest(t *testing.T) {
	f := upToDate()
	f.apiKey.Spec.Rotation.EverySeconds = new(int32(315360000)) // ten years, the CRD's maximum
	next, scheduled := nextRotation(f)
	last := f.record.LastRotation.Time
	if !scheduled || next.Before(last.AddDate(8, 11, 0)) || next.After(last.AddDate(10, 0, 0)) {
		t.Errorf("rotates next at %s, the last time was %s", next, last)
	}
}
