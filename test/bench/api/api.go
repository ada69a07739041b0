// Package api is `bench api`: it measures the API beside what no request can do without (the floors) and beside what most teams
// would write (the naive service), in turn on the same machine, so that it prints ratios and not the machine's speed.
package api

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// Command is `bench api`.
func Command() *cobra.Command {
	var options fixture.Options
	var only []string
	command := &cobra.Command{
		Use:   "api",
		Short: "Measure the API beside its floors and a naive service",
		Long: "Measures requests/s, latency, CPU and allocations of the API beside bare handlers (f1), handlers with one call of\n" +
			"Redis (f2, f2get) and a naive service, at 16 and 128 connections, and at half of the maximum rate.\n" +
			"docs/performance/README.md says what is measured and why.",
		RunE: options.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) { (&bench{Fixture: f}).run(ctx, only, out) }),
	}
	options.AddFlags(command.Flags(), "bin/bench.json")
	options.AddRounds(command.Flags(), 5, 1)
	command.Flags().StringSliceVar(&only, "only", nil, "measure only these, such as f2,create")
	return command
}

// The numbers of clients that ask at once, and of scripts that redis-benchmark sends before it waits for answers.
var (
	connections  = [...]int{16, 128}
	rawPipelines = [...]int{1, 16}
)

// results are all measurements of a run.
type results struct {
	Machine  report.Machine          `json:"machine"`
	Commands map[string]float64      `json:"redisCommandsPerRequest"`
	Samples  map[string][]sample     `json:"samples"` // by name and connections, in the order of the rounds
	Raw      map[string][]rawSample  `json:"redisBenchmark"`
	Open     map[string][]openSample `json:"halfLoad"`
	Ratios   report.Ratios           `json:"ratios"`

	names []string
}

// sample is one measurement.
type sample struct {
	fixture.Sample

	RedisCPU    float64 `json:"redisCPUMicrosPerRequest"` // of the process, the network included
	ScriptCost  float64 `json:"redisMicrosPerScript"`     // of Redis' own count; 0: no script was run
	Allocations float64 `json:"allocationsPerRequest"`
}

// run measures everything in turn, several times over. Those that are compared follow each other, so that what else the machine does
// at that moment is with both.
func (b *bench) run(ctx context.Context, only []string, out io.Writer) {
	b.Progress("starting Redis, the product, the floors and the naive service")
	b.start(ctx)
	all := b.contestants()
	if len(only) > 0 {
		all = slices.DeleteFunc(all, func(c *contestant) bool { return !slices.Contains(only, c.name) })
	}
	r := &results{Commands: map[string]float64{}, Samples: map[string][]sample{}, Raw: map[string][]rawSample{}, Ratios: report.Ratios{}}
	for _, c := range all {
		r.names = append(r.names, c.name)
		r.Commands[c.name] = b.countCommands(ctx, c)
	}
	for round := range b.Rounds {
		b.Progress("round %d of %d", round+1, b.Rounds)
		for _, n := range connections {
			for _, c := range all {
				r.Samples[sampleKey(c.name, n)] = append(r.Samples[sampleKey(c.name, n)], b.measure(ctx, c, n))
			}
		}
		for _, pipeline := range rawPipelines {
			r.Raw[rawKey(pipeline)] = append(r.Raw[rawKey(pipeline)], b.measureRaw(ctx, pipeline))
		}
	}
	b.Progress("at half of the maximum")
	r.Open = b.measureHalfLoad(ctx, all)
	r.compare()
	r.Machine = report.DescribeMachine()
	r.print(out)
	fixture.Check(report.Save(b.Output, r))
}

func sampleKey(name string, connections int) string { return fmt.Sprintf("%s@%d", name, connections) }

func rawKey(pipeline int) string { return fmt.Sprintf("P%d", pipeline) }

// warmUp comes before each measurement.
const warmUp = 250 * time.Millisecond

// measure asks a contestant for a while.
func (b *bench) measure(ctx context.Context, c *contestant, connections int) sample {
	b.renew(ctx)
	mallocs := c.server.Mallocs(ctx)
	schedule := load.Schedule{Connections: connections, WarmUp: warmUp, Duration: b.Length()}
	base, used := c.server.Measure(ctx, c.target(), schedule, b.redis)
	redis := used.AllRedis()
	return sample{
		Sample: base, RedisCPU: fixture.Micros(redis.CPU) / base.Answered, ScriptCost: redis.ScriptMicros / max(redis.Scripts, 1),
		Allocations: (c.server.Mallocs(ctx) - mallocs) / base.Answered,
	}
}

// compare fills in the ratios.
func (r *results) compare() {
	compare := func(name, of, to string, connections int, value func(sample) float64) {
		report.Compare(r.Ratios, sampleKey(name, connections), r.Samples[sampleKey(of, connections)], r.Samples[sampleKey(to, connections)], value)
	}
	perSecond := func(s sample) float64 { return s.PerSecond }
	for _, n := range connections {
		compare("create_vs_f2", create, createFloor, n, perSecond)
		compare("public_vs_f2get", publicRead, readFloor, n, perSecond)
		compare("create_vs_naive", create, naiveCreate, n, perSecond)
		compare("cpu_create_vs_f2", create, createFloor, n, func(s sample) float64 { return s.CPUMicros })
		compare("f1_vs_unauthorized", bareFloor, unauthorized, n, perSecond)
	}
	for pipeline, samples := range r.Raw {
		r.Ratios["redis_us_create@"+pipeline] = report.Medians(samples).ScriptCost
	}
	for name, count := range r.Commands {
		r.Ratios["commands_per_request@"+name] = count
	}
	// Medians, not ratios within a round: at the far end of the latencies, two rounds have little in common.
	if len(r.Open[create]) > 0 && len(r.Open[createFloor]) > 0 {
		r.Ratios["p99_half_load_vs_f2"] = float64(report.Medians(r.Open[create]).P99) / float64(report.Medians(r.Open[createFloor]).P99)
	}
}

// print writes a table for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n\n", r.Machine)
	rounded := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	table := report.Table(out, "\tconnections\trequests/s\tp50\tp99\tserver CPU µs\tRedis CPU µs\tscript µs\tcommands\tallocations\t")
	for _, n := range connections {
		for _, name := range r.names {
			m := report.Medians(r.Samples[sampleKey(name, n)])
			fmt.Fprintf(table, "%s\t%d\t%.0f\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t\n", name, n,
				m.PerSecond, rounded(m.P50), rounded(m.P99), m.CPUMicros, m.RedisCPU, m.ScriptCost, r.Commands[name], m.Allocations)
		}
		fmt.Fprintln(table, strings.Repeat("\t", 10))
	}
	_ = table.Flush() // errors of out are not handled anywhere
	for _, pipeline := range rawPipelines {
		m := report.Medians(r.Raw[rawKey(pipeline)])
		fmt.Fprintf(out, "f0, redis-benchmark -P %d: %.0f scripts/s, %.2f µs each\n", pipeline, m.PerSecond, m.ScriptCost)
	}
	for _, name := range []string{createFloor, create} {
		if m := report.Medians(r.Open[name]); m.PerSecond > 0 {
			fmt.Fprintf(out, "%s at a constant rate of %.0f/s: p50 %s, p99 %s\n", name, m.PerSecond, rounded(m.P50), rounded(m.P99))
		}
	}
	r.Ratios.Print(out)
}
