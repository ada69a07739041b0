package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// The replicas.
const (
	knowsFew  = "few"
	knowsMany = "many"
)

// results are all measurements of a run.
type results struct {
	Machine   report.Machine `json:"machine"`
	Keys      int            `json:"keys"`
	Few       int            `json:"keysOfTheOther"`
	Merchants int            `json:"merchants"`

	InformerBytes  float64             `json:"informerBytesPerKey"`
	TransformBytes float64             `json:"transformBytesPerKey"`
	FewStarts      []start             `json:"startsWithFew"`
	ManyStarts     []start             `json:"startsWithMany"`
	Lookups        map[string][]sample `json:"lookups"` // by replica and status, in the order of the rounds
	Calm           []sample            `json:"calm"`
	Burst          []sample            `json:"burst"`
	Ratios         report.Ratios       `json:"ratios"`
}

func lookupName(replica string, status int) string { return fmt.Sprintf("%s@%d", replica, status) }

func cpuMicros(s sample) float64 { return s.CPUMicros }

func heap(s start) float64 { return s.HeapBytes }

func middle[S any](samples []S, value func(S) float64) float64 {
	median, _ := report.Middle(samples, value)
	return median
}

// compare makes the ratios.
func (r *results) compare() {
	many, few := r.ManyStarts, r.FewStarts
	r.Ratios["bytes_per_key"] = (middle(many, heap) - middle(few, heap)) / float64(r.Keys-r.Few)
	r.Ratios["bytes_per_key_transform_floor"] = r.TransformBytes
	r.Ratios["bytes_per_key_informer"] = r.InformerBytes
	r.Ratios["ready_seconds"] = middle(many, func(s start) float64 { return s.ReadySeconds })
	r.Ratios["ready_cpu_seconds"] = middle(many, func(s start) float64 { return s.CPUSeconds })
	r.Ratios["rss_mb"] = middle(many, func(s start) float64 { return megabytes(s.Memory.Now) })
	r.Ratios["peak_rss_mb"] = middle(many, func(s start) float64 { return megabytes(s.Memory.Most) })
	for _, status := range []int{accepted, refused} {
		r.Ratios[fmt.Sprintf("lookup_vs_%d@%d", r.Few, status)] =
			r.cpu(lookupName(knowsMany, status)) / r.cpu(lookupName(knowsFew, status))
	}
	r.Ratios["p99_burst_vs_calm"] = float64(p99(r.Burst)) / float64(p99(r.Calm))
}

func (r *results) cpu(name string) float64 {
	return middle(r.Lookups[name], cpuMicros)
}

func p99(of []sample) time.Duration {
	median, _ := report.Middle(of, func(s sample) time.Duration { return s.P99 })
	return median
}

func megabytes(n int) float64 { return float64(n) / (1 << 20) }

// print writes tables for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	r.compare()
	fmt.Fprintf(out, "\n%s\n\n", r.Machine)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "keys\tready after\tCPU until then\theap\tRSS\tits most\t")
	for _, row := range []struct {
		keys   int
		starts []start
	}{{r.Few, r.FewStarts}, {r.Keys, r.ManyStarts}} {
		median := func(value func(start) float64) float64 { return middle(row.starts, value) }
		fmt.Fprintf(table, "%d\t%.2f s\t%.2f s\t%.1f MB\t%.0f MB\t%.0f MB\t\n", row.keys,
			median(func(s start) float64 { return s.ReadySeconds }), median(func(s start) float64 { return s.CPUSeconds }),
			median(heap)/(1<<20),
			median(func(s start) float64 { return megabytes(s.Memory.Now) }),
			median(func(s start) float64 { return megabytes(s.Memory.Most) }))
	}
	_ = table.Flush() // as much as is told of errors of out anywhere
	fmt.Fprintln(table, "\nanswer\tkeys\trequests/s\tp50\tp99\tserver CPU µs\t")
	for _, status := range []int{accepted, refused} {
		for _, replica := range []string{knowsFew, knowsMany} {
			keys := r.Keys
			if replica == knowsFew {
				keys = r.Few
			}
			row(table, strconv.Itoa(status), keys, r.Lookups[lookupName(replica, status)])
		}
	}
	row(table, "while nothing changes, 200", r.Keys, r.Calm)
	row(table, "in a burst of changes, 200", r.Keys, r.Burst)
	_ = table.Flush()
	fmt.Fprintln(out)
	r.Ratios.Print(out)
}

func row(table io.Writer, answer string, keys int, samples []sample) {
	median := func(value func(sample) float64) float64 { return middle(samples, value) }
	fmt.Fprintf(table, "%s\t%d\t%.0f\t%.0f µs\t%.0f µs\t%.1f\t\n", answer, keys,
		median(func(s sample) float64 { return s.PerSecond }),
		median(func(s sample) float64 { return float64(s.P50.Microseconds()) }),
		median(func(s sample) float64 { return float64(s.P99.Microseconds()) }),
		middle(samples, cpuMicros))
}
