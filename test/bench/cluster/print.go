package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// print writes tables for people and a line for each ratio for programs.
func (r *results) print(s *stand, out io.Writer) {
	r.compare(s)
	fmt.Fprintf(out, "\n%s; %d merchants, %d connections\n\n", r.Machine, r.Merchants, connections)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\t\trequests/s\tp50\tp99\tAPI CPU µs\tRedis CPU µs\tredirects\t")
	for _, kind := range kinds {
		for _, side := range s.sides() {
			r.row(table, kind, side)
		}
		fmt.Fprintln(table, strings.Repeat("\t", 8))
	}
	_ = table.Flush() // as much as is told of errors of out anywhere

	for i, what := range []string{"as redis-cli makes the cluster", "with buckets moved"} {
		of := r.Shares[i]
		fmt.Fprintf(out, "%s: buckets %v, merchants %v, scripts %v: most to mean %.3f\n", what, of.Buckets, of.Merchants, of.Scripts, spread(of.Scripts))
	}
	fmt.Fprintf(out, "\nlooked at %d answers: %d wrong, %d were 503\n", r.Checked.Asked, r.Checked.Wrong, r.Checked.Unavailable)
	m := r.Moved
	fmt.Fprintf(out, "while %d buckets with %d keys moved in %s: of %d answers %d were wrong, %d were 503; afterwards of %d: %d, %d\n",
		m.Buckets, m.Keys, m.Took.Round(time.Millisecond), m.During.Asked, m.During.Wrong, m.During.Unavailable,
		m.After.Asked, m.After.Wrong, m.After.Unavailable)
	for _, example := range slices.Concat(r.Checked.Examples, m.During.Examples, m.After.Examples) {
		fmt.Fprintln(out, "wrong:", example)
	}
	fmt.Fprintf(out, "\nBytes of Redis for each key, as MEMORY USAGE tells; in brackets with %s 512:\n", roomyHashes)
	for _, kind := range slices.Sorted(maps.Keys(r.Memory.Records)) {
		fmt.Fprintf(out, "%9.0f (%.0f)  %s (%d keys)\n", r.Memory.Records[kind].Bytes, r.Roomy.Records[kind].Bytes, kind, r.Memory.Records[kind].Keys)
	}
	fmt.Fprintln(out)
	r.Ratios.Print(out)
}

func (r *results) row(table io.Writer, kind string, of *side) {
	samples := r.Samples[sampleKey(kind, of)]
	p50, _ := report.Middle(samples, func(s sample) time.Duration { return s.P50 })
	p99, _ := report.Middle(samples, func(s sample) time.Duration { return s.P99 })
	rate, _ := report.Middle(samples, perSecond)
	api, _ := report.Middle(samples, apiCPU)
	redis, _ := report.Middle(samples, redisCPU)
	redirects := int64(0)
	for _, one := range samples {
		redirects += one.Redirects
	}
	fmt.Fprintf(table, "%s\t%s\t%.0f\t%s\t%s\t%.1f\t%.1f\t%d\t\n", kind, of.name, rate,
		p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), api, redis, redirects)
}

func perSecond(s sample) float64 { return s.PerSecond }

func apiCPU(s sample) float64 { return s.CPUMicros }

func redisCPU(s sample) float64 { return s.RedisCPU }

// compare fills in the ratios. Each is the median over the rounds of the ratio within one round.
func (r *results) compare(s *stand) {
	redirects := int64(0)
	for _, kind := range kinds {
		r.ratio("cluster_vs_single@"+kind, kind, s, perSecond)
		r.ratio("cpu_cluster_vs_single@"+kind, kind, s, apiCPU)
		r.ratio("redis_cpu_cluster_vs_single@"+kind, kind, s, redisCPU)
		for _, one := range r.Samples[sampleKey(kind, s.cluster)] {
			redirects += one.Redirects
		}
	}
	r.Ratios["redirects"] = float64(redirects)
	r.Ratios["spread_max_over_mean"] = spread(r.Shares[0].Scripts)
	r.Ratios["spread_max_over_mean_evened"] = spread(r.Shares[1].Scripts)
	r.Ratios["commands_per_request"] = r.Trips
	r.Ratios["wrong_answers"] = float64(r.Checked.Wrong + r.Moved.During.Wrong + r.Moved.After.Wrong)
	r.Ratios["unavailable_while_moving"] = float64(r.Moved.During.Unavailable) / float64(max(r.Moved.During.Asked, 1))
	r.Ratios["bytes_per_charge"] = r.Memory.BytesPerCharge
	for kind, weighed := range r.Memory.Records {
		if weighed.Keys > 1 && kind != "expiry" && kind != "due" {
			r.Ratios["bytes@"+kind] = weighed.Bytes
			if roomy := r.Roomy.Records[kind].Bytes; roomy > 0 {
				r.Ratios["bytes_roomy@"+kind] = roomy
			}
		}
	}
}

func (r *results) ratio(name, kind string, s *stand, value func(sample) float64) {
	above, below := r.Samples[sampleKey(kind, s.cluster)], r.Samples[sampleKey(kind, s.single)]
	ratios := make([]float64, min(len(above), len(below)))
	for i := range ratios {
		ratios[i] = value(above[i]) / value(below[i])
	}
	if middle, ok := report.Middle(ratios, func(ratio float64) float64 { return ratio }); ok {
		r.Ratios[name] = middle
	}
}
