package reconciler

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestVersionsBehind(t *testing.T) {
	for desc, tc := range map[string]struct {
		cached string
		uid    types.UID
		after  time.Duration
		want   bool
	}{
		"the cache has not got it":        {"9", "1", 0, true},
		"the cache has it":                {"10", "1", 0, false},
		"the cache has a later one":       {"11", "1", 0, false},
		"another object of the same name": {"9", "2", 0, false},
		"a database that was restored":    {"9", "1", waitForCache, false},
		"versions that have no order":     {"abc", "1", 0, false},
	} {
		t.Run(desc, func(t *testing.T) {
			var v versions
			v.wrote("1", "10", start)
			cached := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{UID: tc.uid, ResourceVersion: tc.cached}}
			for range 2 { // the same answer, however often it is asked
				if got := v.behind(cached, start.Add(tc.after)); got != tc.want {
					t.Errorf("behind: %t, want %t", got, tc.want)
				}
			}
		})
	}
}

// Objects that were deleted after a write are never seen again, and must not be remembered for good.
func TestVersionsForgets(t *testing.T) {
	var v versions
	for i := range 10_000 {
		v.wrote(types.UID(strconv.Itoa(i)), "10", start)
	}
	v.wrote("last", "10", start.Add(waitForCache))
	if n := len(v.written); n != 1 {
		t.Errorf("%d objects are remembered, want the one that was written last", n)
	}
}
