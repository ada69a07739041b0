// Package report is how benchmarks say what they measured: the machine, medians, a line for each ratio, and a JSON file.
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

// Ratios are what a benchmark comes to, by name.
type Ratios map[string]float64

// Print writes a line `ratio NAME VALUE` for each, in the order of the names.
func (r Ratios) Print(out io.Writer) {
	fmt.Fprintln(out)
	for _, name := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(out, "ratio %s %.3f\n", name, r[name])
	}
}

// Compare adds the median over the rounds of the ratio within one round, for what disturbs a round disturbs both. Without
// rounds there is no ratio.
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

// Table begins one with a heading, whose cells end with tabs.
func Table(out io.Writer, heading string) *tabwriter.Writer {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, heading)
	return table
}

// Save writes all that was measured, as JSON.
func Save(path string, measured any) error {
	text, err := json.MarshalIndent(measured, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// Machine is what was measured on.
type Machine struct {
	Time       time.Time `json:"time"`
	Processor  string    `json:"processor"`
	Processors int       `json:"processors"`
	Kernel     string    `json:"kernel"`
	Go         string    `json:"go"`
	Redis      string    `json:"redis"`
	Load       string    `json:"loadAverage"` // at the end, the benchmark's own load included
}

// DescribeMachine returns what this one is, at this moment.
func DescribeMachine() Machine {
	return Machine{
		Time: time.Now().UTC(), Processors: runtime.NumCPU(), Go: runtime.Version(),
		Processor: processorName(), Redis: redisVersion(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), Load: firstLine("/proc/loadavg"),
	}
}

// String is one line for people.
func (m Machine) String() string {
	return fmt.Sprintf("%d x %s, Linux %s, %s, %s, load %s", m.Processors, m.Processor, m.Kernel, m.Go, m.Redis, m.Load)
}

func processorName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
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

func firstLine(path string) string {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
