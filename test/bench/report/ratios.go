package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// Ratios are what a benchmark comes to, by name.
type Ratios map[string]float64

// Print writes a line `ratio NAME VALUE` for each, in the order of the names.
func (r Ratios) Print(out io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(out, "ratio %s %.3f\n", name, r[name])
	}
}

// Middle is the median of a value of some samples; ok is false if there are none.
func Middle[S any, V cmp.Ordered](samples []S, value func(S) V) (median V, ok bool) {
	if len(samples) == 0 {
		return median, false
	}
	values := make([]V, len(samples))
	for i, one := range samples {
		values[i] = value(one)
	}
	slices.Sort(values)
	return values[len(values)/2], true
}

// Save writes all that was measured, as JSON.
func Save(path string, measured any) error {
	text, err := json.MarshalIndent(measured, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
