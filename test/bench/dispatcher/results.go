package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// results are all that was measured.
type results struct {
	Machine    report.Machine `json:"machine"`
	Throughput []throughput   `json:"throughput"`
	Lag        []lag          `json:"lag"`
	Idle       []idle         `json:"idle"`
	Ratios     report.Ratios  `json:"ratios"`
}

// benchmark measures everything and says what came of it.
func benchmark(ctx context.Context, settings settings, out io.Writer) (err error) {
	fmt.Fprintln(out, "==> starting Kubernetes, Redis, the receiver and the dispatcher")
	s, err := newStand(ctx, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var all results
	// The first backlog opens the connections; it is not counted.
	for round := range settings.rounds + 1 {
		fmt.Fprintf(out, "==> %d events, round %d of %d\n", settings.events, round, settings.rounds)
		measured, err := s.measureThroughput(ctx)
		if err != nil {
			return err
		}
		if round > 0 {
			all.Throughput = append(all.Throughput, measured)
		}
	}
	fmt.Fprintf(out, "==> %d events a second for %s\n", constantRate, settings.length)
	lag, err := s.measureLag(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "==> nothing for %s\n", settings.rest())
	idle, err := s.measureIdle(ctx)
	if err != nil {
		return err
	}
	all.Lag, all.Idle = append(all.Lag, lag), append(all.Idle, idle)
	all.Machine = report.DescribeMachine()
	all.compare()
	all.print(out)
	return report.Save(settings.output, all)
}

// compare fills the ratios, each the median over the rounds of the ratio within one round.
func (r *results) compare() {
	r.Ratios = report.Ratios{}
	r.Ratios["dispatch_vs_floor"], _ = report.Middle(r.Throughput, func(t throughput) float64 {
		return t.Dispatcher.PerCore / t.Floor.PerCore
	})
	r.Ratios["events_delivered_again"], _ = report.Middle(r.Throughput, func(t throughput) float64 { return float64(t.Repeated) })
	for _, lag := range r.Lag {
		r.Ratios["first_attempt_lag_p99_ms"] = float64(lag.P99) / float64(time.Millisecond)
	}
	for _, idle := range r.Idle {
		r.Ratios["idle_scripts_per_second"] = idle.Scripts
		r.Ratios["idle_commands_per_second"] = idle.Commands
		r.Ratios["idle_cpu_percent"] = idle.CPU
		r.Ratios["idle_redis_cpu_percent"] = idle.RedisCPU
	}
}

// print writes a table for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n\n", r.Machine)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tevents/s\tevents/CPU s\tCPU µs\tconnections\tallocations\tRedis CPU µs\tscript µs\tscripts\t")
	for _, t := range r.Throughput {
		fmt.Fprintf(table, "dispatcher\t%.0f\t%.0f\t%.1f\t%d\t%.0f\t%.1f\t%.1f\t%.2f\t\n", t.Dispatcher.PerSecond, t.Dispatcher.PerCore,
			t.Dispatcher.CPU, t.Dispatcher.Connections, t.Allocations, t.RedisCPU, t.ScriptMicros, t.Scripts)
		fmt.Fprintf(table, "floor\t%.0f\t%.0f\t%.1f\t%d\t\t\t\t\t\n", t.Floor.PerSecond, t.Floor.PerCore, t.Floor.CPU, t.Floor.Connections)
	}
	_ = table.Flush() // as much as is told of errors of out anywhere
	for _, lag := range r.Lag {
		fmt.Fprintf(out, "\nat %d events/s: first attempts after %s (p50), %s (p99), %s (longest); the load was up to %s late; CPU µs per event: %.1f, Redis %.1f\n",
			constantRate, rounded(lag.P50), rounded(lag.P99), rounded(lag.Max), rounded(lag.Late), lag.CPU, lag.RedisCPU)
	}
	for _, idle := range r.Idle {
		fmt.Fprintf(out, "at rest: %.2f %% of a core, Redis %.2f %%; %.1f scripts/s, %.1f commands/s\n",
			idle.CPU, idle.RedisCPU, idle.Scripts, idle.Commands)
	}
	fmt.Fprintln(out)
	r.Ratios.Print(out)
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
