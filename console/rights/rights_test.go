package rights

import (
	"slices"
	"testing"
)

// Of 320 Merchants of a crowd, whose names come first, and two of another tenant, both of these are among the first that are reviewed.
func TestInTurn(t *testing.T) {
	namespaces := append(slices.Repeat([]string{"crowd"}, 320), "victim", "victim")
	places := make([]int, len(namespaces))
	for i := range places {
		places[i] = i
	}
	turns := inTurn(places, func(i int) string { return namespaces[i] })
	if first := turns[:4]; !slices.Equal(first, []int{0, 320, 1, 321}) {
		t.Errorf("the first are %v", first)
	}
	if slices.Sort(turns); !slices.Equal(turns, places) {
		t.Errorf("%d of %d are reviewed", len(turns), len(places))
	}
}
