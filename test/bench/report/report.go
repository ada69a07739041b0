// Package report writes the results of benchmarks: the machine, medians, a line for each ratio, and a JSON file.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// Ratios are the results of a benchmark, by name.
type Ratios map[string]float64

// Print writes a line `ratio NAME VALUE` for each, in the order of the names.
func (r Ratios) Print(out io.Writer) {
	fmt.Fprintln(out)
	for _, name := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(out, "ratio %s %.3f\n", name, r[name])
	}
}

// Compare adds the median of the ratios within each round, because a disturbance during a round affects both sides. Without rounds
// there is no ratio.
func Compare[S any](r Ratios, name string, of, to []S, value func(S) float64) {
	ratios := make([]float64, min(len(of), len(to)))
	for i := range ratios {
		ratios[i] = value(of[i]) / value(to[i])
	}
	if len(ratios) > 0 {
		r[name] = median(ratios)
	}
}

func median[V cmp.Ordered](values []V) V {
	slices.Sort(values)
	return values[len(values)/2]
}

// Medians has in each numeric field the median of that field in the samples, 0 without samples.
func Medians[S any](samples []S) (medians S) {
	all := make([]reflect.Value, len(samples))
	for i := range samples {
		all[i] = reflect.ValueOf(samples[i])
	}
	setMedians(reflect.ValueOf(&medians).Elem(), all)
	return medians
}

func setMedians(medians reflect.Value, samples []reflect.Value) {
	switch {
	case len(samples) == 0:
	case medians.Kind() == reflect.Struct:
		for i := range medians.NumField() {
			fields := make([]reflect.Value, len(samples))
			for k, sample := range samples {
				fields[k] = sample.Field(i)
			}
			setMedians(medians.Field(i), fields)
		}
	case medians.CanFloat(), medians.CanInt():
		slices.SortFunc(samples, func(a, b reflect.Value) int {
			if a.CanFloat() {
				return cmp.Compare(a.Float(), b.Float())
			}
			return cmp.Compare(a.Int(), b.Int())
		})
		medians.Set(samples[len(samples)/2])
	}
}

// Table begins a table. Cells end with tabs.
func Table(out io.Writer, heading string) *tabwriter.Writer {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, heading)
	return table
}

// Rounded is a latency for a table.
func Rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// Save writes all that was measured, as JSON.
func Save(path string, measured any) error {
	text, err := json.MarshalIndent(measured, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// DescribeMachine returns one line about this machine. The load average includes the benchmark's own load.
func DescribeMachine() string {
	processor := runtime.GOARCH
	for line := range strings.Lines(firstLines("/proc/cpuinfo", 20)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			processor = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%s: %d x %s, Linux %s, %s, %s, load %s", time.Now().UTC().Format(time.RFC3339), runtime.NumCPU(), processor,
		firstLines("/proc/sys/kernel/osrelease", 1), runtime.Version(), redisVersion(), firstLines("/proc/loadavg", 1))
}

func redisVersion() string {
	binary, _ := redistest.Binary()
	text, _ := exec.Command(binary, "--version").Output()
	words := strings.Fields(string(text)) // such as: Valkey server v=8.0.1
	if len(words) > 2 {
		return words[0] + " " + strings.TrimPrefix(words[2], "v=")
	}
	return "Redis"
}

func firstLines(path string, n int) string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[:min(n, len(lines))], "\n")
}
