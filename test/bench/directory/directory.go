// Package directory is `bench directory`: it publishes 100,000 keys on a real kube-apiserver and measures a replica of the API with all
// of them (memory, time until it is ready, requests) beside a replica with 100 keys.
package directory

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

const (
	fewKeys = 100
	// changes is the number of keys that change in a burst.
	changes = 1000
	// limit is for the whole run on a busy machine.
	limit = 15 * time.Minute
)

type settings struct {
	fixture.Options

	keys, merchants, starts, bursts int
}

// Command is `bench directory`.
func Command() *cobra.Command {
	var s settings
	command := &cobra.Command{
		Use:   "directory",
		Short: "Measure what 100,000 published keys cost a replica of the API",
		Long: "Measures memory, start and requests of a replica of the API with many keys beside one with 100 keys, and requests\n" +
			"while keys change.",
		PreRunE: fixture.AtLeast("keys", 2*changes),
		RunE: s.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			(&bench{Fixture: f, settings: s}).run(ctx, out)
		}),
	}
	s.AddFlags(command.Flags(), "bin/bench-directory.json")
	s.AddRounds(command.Flags(), 7, 1)
	command.Flags().IntVar(&s.keys, "keys", 100_000, "number of keys of the large replica; the other one has 100")
	command.Flags().IntVar(&s.merchants, "merchants", 1000, "number of merchants of these keys")
	command.Flags().IntVar(&s.starts, "starts", 3, "how often to start each replica")
	command.Flags().IntVar(&s.bursts, "bursts", 9, "number of bursts of changes")
	return command
}

// results are all measurements of a run.
type results struct {
	Machine   string `json:"machine"`
	Keys      int    `json:"keys"`
	Few       int    `json:"keysOfTheOther"`
	Merchants int    `json:"merchants"`

	InformerBytes  float64                     `json:"informerBytesPerKey"`
	TransformBytes float64                     `json:"transformBytesPerKey"`
	FewStarts      []start                     `json:"startsWithFew"`
	ManyStarts     []start                     `json:"startsWithMany"`
	Lookups        map[string][]fixture.Sample `json:"lookups"` // by replica and status, in the order of the rounds
	Calm           []fixture.Sample            `json:"calm"`
	Burst          []fixture.Sample            `json:"burst"`
	Ratios         report.Ratios               `json:"ratios"`
}

// bench is everything that runs.
type bench struct {
	*fixture.Fixture

	settings settings
	redis    *fixture.Redis
	few      *population
	many     *population
}

// population is the merchants and keys of a namespace, and the replica that reads them.
type population struct {
	name      string
	publisher *fixture.Publisher
	merchants int
	keys      []string
	replica   *fixture.Process
}

func (b *bench) run(ctx context.Context, out io.Writer) {
	b.redis = b.StartRedis(ctx)
	b.few = b.publish(ctx, "few", 1, fewKeys)
	b.many = b.publish(ctx, "many", b.settings.merchants, b.settings.keys)
	r := &results{
		Keys: b.settings.keys, Few: fewKeys, Merchants: b.settings.merchants, Ratios: report.Ratios{}, Lookups: map[string][]fixture.Sample{},
	}
	b.Progress("measuring the memory of plain informers")
	b.measureFloors(ctx, r)
	b.Progress("measuring the start, and memory after it")
	b.measureStarts(ctx, r)
	b.Progress("measuring requests, beside a replica with %d keys", fewKeys)
	b.measureLookups(ctx, r)
	b.Progress("measuring requests while %d keys change", changes)
	b.measureBursts(ctx, r)
	r.Machine = report.DescribeMachine()
	r.print(out)
	fixture.Check(report.Save(b.Output, r))
}

// publish creates a population, and prints its progress.
func (b *bench) publish(ctx context.Context, name string, merchants, keys int) *population {
	b.Progress("publishing %d keys of %d merchants", keys, merchants)
	p := &population{name: name, publisher: b.NewPublisher(ctx, name), merchants: merchants, keys: make([]string, keys)}
	fixture.Check(fixture.Each(ctx, writers, merchants, func(ctx context.Context, i int) error {
		_, err := p.publisher.Merchant(ctx, i, "")
		return err
	}))
	const often = 10_000
	fixture.Check(fixture.Each(ctx, writers, keys, func(ctx context.Context, i int) error {
		if i%often == often-1 {
			b.Progress("    %d of %d", i+1, keys)
		}
		return p.issue(ctx, i, 1)
	}))
	return p
}

// writers is the number of concurrent writers; more are not faster on two processors.
const writers = 16

// issue publishes a generation of a key.
func (p *population) issue(ctx context.Context, i int, generation int64) (err error) {
	p.keys[i], err = p.publisher.Key(ctx, i, i%p.merchants, generation)
	return err
}

// print writes tables for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	few, many, calm, burst := report.Medians(r.FewStarts), report.Medians(r.ManyStarts), report.Medians(r.Calm), report.Medians(r.Burst)
	mebibytes := func(n int) float64 { return float64(n) / (1 << 20) }
	lookups := map[string]fixture.Sample{}
	for name, samples := range r.Lookups {
		lookups[name] = report.Medians(samples)
	}
	r.Ratios["bytes_per_key"] = (many.HeapBytes - few.HeapBytes) / float64(r.Keys-r.Few)
	r.Ratios["bytes_per_key_transform_floor"] = r.TransformBytes
	r.Ratios["bytes_per_key_informer"] = r.InformerBytes
	r.Ratios["ready_seconds"] = many.ReadySeconds
	r.Ratios["ready_cpu_seconds"] = many.CPUSeconds
	r.Ratios["rss_mb"] = mebibytes(many.Memory.Now)
	r.Ratios["peak_rss_mb"] = mebibytes(many.Memory.Most)
	for _, status := range []string{"@200", "@401"} {
		r.Ratios[fmt.Sprintf("lookup_vs_%d%s", r.Few, status)] = lookups["many"+status].CPUMicros / lookups["few"+status].CPUMicros
	}
	r.Ratios["p99_burst_vs_calm"] = float64(burst.P99) / float64(calm.P99)

	fmt.Fprintf(out, "\n%s\n\n", r.Machine)
	table := report.Table(out, "keys\tready after\tCPU until then\theap\tRSS\tpeak RSS\t")
	for i, m := range []start{few, many} {
		fmt.Fprintf(table, "%d\t%.2f s\t%.2f s\t%.1f MB\t%.0f MB\t%.0f MB\t\n", []int{r.Few, r.Keys}[i], m.ReadySeconds, m.CPUSeconds,
			m.HeapBytes/(1<<20), mebibytes(m.Memory.Now), mebibytes(m.Memory.Most))
	}
	_ = table.Flush() // errors of out are not handled anywhere
	fmt.Fprintln(out)
	table = report.Table(out, "answer\tkeys\trequests/s\tp50\tp99\tserver CPU µs\t")
	row := func(answer string, keys int, m fixture.Sample) {
		fmt.Fprintf(table, "%s\t%d\t%.0f\t%d µs\t%d µs\t%.1f\t\n", answer, keys, m.PerSecond, m.P50.Microseconds(), m.P99.Microseconds(), m.CPUMicros)
	}
	for _, status := range []string{"200", "401"} {
		row(status, r.Few, lookups["few@"+status])
		row(status, r.Keys, lookups["many@"+status])
	}
	row("while nothing changes, 200", r.Keys, calm)
	row("in a burst of changes, 200", r.Keys, burst)
	_ = table.Flush()
	r.Ratios.Print(out)
}
