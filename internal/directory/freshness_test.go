package directory

import (
	"testing"
	"time"
)

func TestAgeIsOfTheWatchThatIsFurtherBehind(t *testing.T) {
	s := newScene()
	later := func(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }
	wantAge := func(when string, want time.Duration) {
		t.Helper()
		if got := s.Age(); got != want {
			t.Errorf("%s: age %s, want %s", when, got, want)
		}
	}
	later(time.Minute)
	wantAge("never heard of anything", time.Minute)
	_ = s.keyInformer.Replace(nil, "1")
	wantAge("one of the lists", time.Minute)
	_ = s.merchantInformer.Replace(nil, "1")
	_ = s.Informer("tombstone").Replace(nil, "1")
	wantAge("all lists", 0)
	later(time.Hour)
	s.keyInformer.UpdateResourceVersion("2")
	wantAge("a bookmark of one watch", time.Hour)
	s.merchantInformer.UpdateResourceVersion("2")
	s.Informer("tombstone").UpdateResourceVersion("2")
	wantAge("a bookmark of each", 0)
}
