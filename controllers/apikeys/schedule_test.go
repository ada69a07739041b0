package apikeys

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestTheScheduleSpreadsKeysOverATenth(t *testing.T) {
	const every, keys, parts = 90 * 24 * time.Hour, 10000, 100
	var share [parts]int
	for i := range keys {
		uid := types.UID("uid-" + strconv.Itoa(i))
		ahead := early(every, uid)
		if ahead < 0 || ahead >= every/10 {
			t.Fatalf("%s ahead of an interval of %s", ahead, every)
		}
		if ahead != early(every, uid) {
			t.Fatal("one key has two schedules")
		}
		share[ahead*parts/(every/10)]++
	}
	for part, n := range share {
		if n < keys/parts/2 || n > keys/parts*2 {
			t.Errorf("%d of %d keys rotate in part %d of %d", n, keys, part, parts)
		}
	}
}

func TestTheLongestScheduleDoesNotOverflow(t *testing.T) {
	f := settled()
	f.apiKey.Spec.Rotation.EverySeconds = new(int32(315360000)) // ten years, the CRD's maximum
	next, scheduled := nextRotation(f)
	last := f.record.LastRotation.Time
	if !scheduled || next.Before(last.AddDate(8, 11, 0)) || next.After(last.AddDate(10, 0, 0)) {
		t.Errorf("rotates next at %s, the last time was %s", next, last)
	}
}
