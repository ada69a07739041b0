package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMediansAreOfEachField(t *testing.T) {
	type Base struct{ P50 time.Duration }
	type sample struct {
		Base

		Rate  float64
		Count int
		Name  string
	}
	samples := []sample{{Base{30}, 1, 7, "a"}, {Base{10}, 3, 8, "b"}, {Base{20}, 2, 9, "c"}}
	if diff := cmp.Diff(sample{Base: Base{20}, Rate: 2, Count: 8}, Medians(samples)); diff != "" {
		t.Errorf("medians (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(sample{}, Medians[sample](nil)); diff != "" {
		t.Errorf("medians of nothing (-want +got):\n%s", diff)
	}
}

func TestCompareIsTheMedianOfTheRounds(t *testing.T) {
	ratios, value := Ratios{}, func(v float64) float64 { return v }
	Compare(ratios, "faster", []float64{2, 30, 40}, []float64{1, 10, 10}, value)
	Compare(ratios, "unmeasured", nil, []float64{1}, value)
	if diff := cmp.Diff(Ratios{"faster": 3}, ratios); diff != "" {
		t.Errorf("ratios (-want +got):\n%s", diff)
	}
}
