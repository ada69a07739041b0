package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// print writes a table for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	r.compare()
	fmt.Fprintf(out, "\n%s\n\n", r.Machine)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tconnections\trequests/s\tp50\tp99\tserver CPU µs\tRedis CPU µs\tscript µs\tcommands\tallocations\t")
	for _, n := range connections {
		for _, name := range r.order() {
			r.row(table, name, n)
		}
		fmt.Fprintln(table, strings.Repeat("\t", 10))
	}
	_ = table.Flush() // as much as is told of errors of out anywhere
	for _, pipeline := range rawPipelines {
		samples := r.Raw[rawKey(pipeline)]
		rate, _ := report.Middle(samples, func(s rawSample) float64 { return s.PerSecond })
		cost, _ := report.Middle(samples, func(s rawSample) float64 { return s.ScriptCost })
		fmt.Fprintf(out, "f0, redis-benchmark -P %d: %.0f scripts/s, %.2f µs each\n", pipeline, rate, cost)
	}
	r.printHalfLoad(out)
	fmt.Fprintln(out)
	r.Ratios.Print(out)
}

// order is that of the contestants.
func (r *results) order() []string {
	return slices.DeleteFunc([]string{
		bareFloor, createFloor, create, createOnce, replay, naiveCreate, readFloor, publicRead, read, merchantMe, unauthorized,
	}, func(name string) bool { _, measured := r.Trips[name]; return !measured })
}

func (r *results) row(table io.Writer, name string, connections int) {
	samples := r.Samples[sampleKey(name, connections)]
	median := func(value func(sample) float64) float64 {
		v, _ := report.Middle(samples, value)
		return v
	}
	p50, _ := report.Middle(samples, func(s sample) time.Duration { return s.P50 })
	p99, _ := report.Middle(samples, func(s sample) time.Duration { return s.P99 })
	fmt.Fprintf(table, "%s\t%d\t%.0f\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t\n", name, connections,
		median(perSecond), rounded(p50), rounded(p99), median(cpu),
		median(func(s sample) float64 { return s.RedisCPU }), median(func(s sample) float64 { return s.ScriptCost }),
		r.Trips[name], median(func(s sample) float64 { return s.Allocations }))
}

func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
