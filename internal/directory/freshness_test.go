package directory

import (
	"testing"
	"time"
)

func TestAgeIsOfTheWatchThatIsFurtherBehind(t *testing.T) {
	f := newFixture()
	later := func(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }
	wantAge := func(when string, want time.Duration) {
		t.Helper()
		if got := f.Age(); got != want {
			t.Errorf("%s: age %s, want %s", when, got, want)
		}
	}
	later(time.Minute)
	wantAge("never heard of anything", time.Minute)
	_ = f.keyInformer.Replace(nil, "1")
	wantAge("one of the lists", time.Minute)
	_ = f.merchantInformer.Replace(nil, "1")
	_ = f.Informer("tombstone").Replace(nil, "1")
	wantAge("all lists", 0)
	later(time.Hour)
	f.keyInformer.UpdateResourceVersion("2")
	wantAge("a bookmark of one watch", time.Hour)
	f.merchantInformer.UpdateResourceVersion("2")
	f.Informer("tombstone").UpdateResourceVersion("2")
	wantAge("a bookmark of each", 0)
}
