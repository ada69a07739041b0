// Package cluster is `bench cluster`: the same load on a Redis Cluster and on a single Redis. It checks every
// response, and measures the cost of requests, the load on each primary, errors while buckets move, and memory.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// Command is `bench cluster`.
func Command() *cobra.Command {
	var options fixture.Options
	var merchants, primaries, connections int
	command := &cobra.Command{
		Use:   "cluster",
		Short: "Measure the API on a Redis Cluster beside a single Redis",
		Long: "Measures requests on a Redis Cluster beside a single Redis, checks every response, moves buckets under load, and\n" +
			"measures the memory of Redis.",
		PreRunE: func(cmd *cobra.Command, args []string) error {
			return errors.Join(fixture.AtLeast("merchants", 2)(cmd, args), fixture.AtLeast("primaries", 3)(cmd, args))
		},
		RunE: options.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) {
			(&bench{Fixture: f, merchants: make([]merchant, merchants), primaries: primaries, connections: connections}).run(ctx, out)
		}),
	}
	options.AddFlags(command.Flags(), "bin/bench-cluster.json")
	options.AddRounds(command.Flags(), 3, 1)
	command.Flags().IntVar(&merchants, "merchants", 960, "number of merchants")
	command.Flags().IntVar(&primaries, "primaries", 3, "number of primaries of the Redis Cluster, at least 3")
	command.Flags().IntVar(&connections, "connections", 64, "number of clients, each with a request at a time")
	return command
}

// results are all measurements of a run.
type results struct {
	Machine     string              `json:"machine"`
	Merchants   int                 `json:"merchants"`
	Checked     checked             `json:"checked"`
	Commands    float64             `json:"redisCommandsPerRequest"`
	Primaries   int                 `json:"primaries"`
	Connections int                 `json:"connections"`
	Shares      shares              `json:"shares"`
	Samples     map[string][]sample `json:"samples"` // by kind and side, in the order of the rounds
	Memory      memory              `json:"memory"`
	Roomy       memory              `json:"memoryWithRoomyHashes"`
	Moved       moves               `json:"moved"`
	Ratios      report.Ratios       `json:"ratios"`
}

// merchant is one that charges.
type merchant struct {
	fixture.Merchant

	key string
}

// side is a Redis or a Redis Cluster, and a replica of the API that uses it.
type side struct {
	*fixture.Process

	name        string
	nodes       []*fixture.Redis
	bucketSlots []int   // of a cluster: the slot of each bucket
	first       checked // the first sessions, which are replayed and read later
}

// bench is what runs while it is measured.
type bench struct {
	*fixture.Fixture

	merchants       []merchant
	primaries       int
	connections     int
	single, cluster *side
}

func (b *bench) sides() []*side { return []*side{b.single, b.cluster} }

// run puts the same load on both sides in turn.
func (b *bench) run(ctx context.Context, out io.Writer) {
	b.Progress("publishing %d merchants, and starting a Redis, a Redis Cluster of %d, and two replicas of the API", len(b.merchants), b.primaries)
	b.start(ctx)
	r := &results{Merchants: len(b.merchants), Primaries: b.primaries, Connections: b.connections, Samples: map[string][]sample{}, Ratios: report.Ratios{}}
	empty := usedMemory(ctx, b.single.nodes[0])
	b.Progress("every merchant creates, repeats, reads and cancels a session; every response is checked")
	for _, side := range b.sides() {
		side.first = b.check(ctx, side, b.merchants, "first")
		r.Checked.add(side.first)
	}
	if r.Checked.Wrong+r.Checked.Unavailable > 0 {
		fixture.Check(fmt.Errorf("of the first %d responses %d were wrong and %d had status 503: %q",
			r.Checked.Asked, r.Checked.Wrong, r.Checked.Unavailable, r.Checked.Examples))
	}
	r.Commands = b.countCommands(ctx, &r.Checked)
	r.Shares = b.shares(ctx)
	for round := range b.Rounds {
		b.Progress("round %d of %d", round+1, b.Rounds)
		for _, kind := range kinds {
			for _, side := range b.sides() {
				measured := side.measure(ctx, kind, round, b.connections, b.Length())
				r.Samples[kind+"@"+side.name] = append(r.Samples[kind+"@"+side.name], measured)
				if side == b.cluster {
					r.Shares.addScripts(measured)
				}
			}
		}
	}
	r.Checked.add(b.check(ctx, b.cluster, b.merchants, "last"))
	r.Memory = measureMemory(ctx, b.single.nodes[0], empty)
	b.Progress("moving %d buckets under load", movedBuckets)
	r.Moved = b.reshard(ctx)
	r.Roomy = b.measureRoomyMemory(ctx)
	r.Machine = report.DescribeMachine()
	r.print(out)
	fixture.Check(report.Save(b.Output, r))
	if wrong := r.Ratios["wrong_answers"]; wrong > 0 {
		fixture.Check(fmt.Errorf("%.0f responses were wrong", wrong))
	}
}

// start publishes the merchants, and starts both sides.
func (b *bench) start(ctx context.Context) {
	publisher := b.NewPublisher(ctx, fixture.Namespace)
	const writers = 8
	fixture.Check(fixture.Each(ctx, writers, len(b.merchants), func(ctx context.Context, i int) (err error) {
		m := &b.merchants[i]
		if m.Merchant, err = publisher.Merchant(ctx, i, ""); err != nil {
			return err
		}
		m.key, err = publisher.Key(ctx, i, i, 1)
		return err
	}))
	b.single, b.cluster = &side{name: "single"}, &side{name: "cluster"}
	b.single.nodes = []*fixture.Redis{b.StartRedis(ctx)}
	b.single.Process = b.StartAPI(ctx, b.Kubeconfig, fixture.Namespace, b.single.nodes[0].URL())
	for range b.primaries {
		b.cluster.nodes = append(b.cluster.nodes, b.StartRedis(ctx, "--cluster-enabled", "yes"))
	}
	b.cluster.join(ctx)
	b.cluster.Process = b.StartAPI(ctx, b.Kubeconfig, fixture.Namespace, b.cluster.clusterURL(),
		"--settlement-replicas", "0") // its servers have no replicas
}

// compare fills in the ratios.
func (r *results) compare() {
	perSecond := func(s sample) float64 { return s.PerSecond }
	apiCPU := func(s sample) float64 { return s.CPUMicros }
	redisCPU := func(s sample) float64 { return s.RedisCPU }
	for _, kind := range kinds {
		single, cluster := r.Samples[kind+"@single"], r.Samples[kind+"@cluster"]
		report.Compare(r.Ratios, "cluster_vs_single@"+kind, cluster, single, perSecond)
		report.Compare(r.Ratios, "cpu_cluster_vs_single@"+kind, cluster, single, apiCPU)
		report.Compare(r.Ratios, "redis_cpu_cluster_vs_single@"+kind, cluster, single, redisCPU)
		r.Ratios["redirects"] += redirects(cluster)
	}
	r.Ratios["spread_max_over_mean"] = spread(r.Shares.Scripts)
	r.Ratios["commands_per_request"] = r.Commands
	r.Ratios["wrong_answers"] = float64(r.Checked.Wrong + r.Moved.During.Wrong + r.Moved.After.Wrong)
	r.Ratios["unavailable_while_moving"] = float64(r.Moved.During.Unavailable) / float64(max(r.Moved.During.Asked, 1))
	r.Ratios["bytes_per_charge"] = r.Memory.BytesPerCharge
	for kind, measured := range r.Memory.Records {
		if measured.Keys > 1 && !slices.Contains([]string{"expiry", "queue", "due"}, kind) { // they are indexes
			r.Ratios["bytes@"+kind] = measured.Bytes
			if roomy := r.Roomy.Records[kind].Bytes; roomy > 0 {
				r.Ratios["bytes_roomy@"+kind] = roomy
			}
		}
	}
}

func redirects(samples []sample) (sum float64) {
	for _, one := range samples {
		sum += one.Redirects
	}
	return sum
}

// print writes tables for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	r.compare()
	fmt.Fprintf(out, "\n%s; %d merchants, %d primaries, %d connections\n\n", r.Machine, r.Merchants, r.Primaries, r.Connections)
	table := report.Table(out, "\t\trequests/s\tp50\tp99\tAPI CPU µs\tRedis CPU µs\tredirects\t")
	for _, kind := range kinds {
		for _, side := range []string{"single", "cluster"} {
			samples := r.Samples[kind+"@"+side]
			m := report.Medians(samples)
			fmt.Fprintf(table, "%s\t%s\t%.0f\t%s\t%s\t%.1f\t%.1f\t%.0f\t\n", kind, side, m.PerSecond, report.Rounded(m.P50), report.Rounded(m.P99),
				m.CPUMicros, m.RedisCPU, redirects(samples))
		}
		fmt.Fprintln(table, strings.Repeat("\t", 8))
	}
	_ = table.Flush() // errors of out are not handled anywhere

	s := r.Shares
	fmt.Fprintf(out, "primaries: buckets %v, merchants %v, scripts %v; the busiest to the mean %.3f\n", s.Buckets, s.Merchants, s.Scripts, spread(s.Scripts))
	fmt.Fprintf(out, "\nchecked %d responses: %d wrong, %d with status 503\n", r.Checked.Asked, r.Checked.Wrong, r.Checked.Unavailable)
	m := r.Moved
	fmt.Fprintf(out, "moved %d buckets with %d keys in %s: of %d responses %d were wrong, %d had status 503; afterwards of %d: %d, %d\n",
		m.Buckets, m.Keys, m.Took.Round(time.Millisecond), m.During.Asked, m.During.Wrong, m.During.Unavailable,
		m.After.Asked, m.After.Wrong, m.After.Unavailable)
	for _, example := range slices.Concat(r.Checked.Examples, m.During.Examples, m.After.Examples) {
		fmt.Fprintln(out, "wrong:", example)
	}
	fmt.Fprintf(out, "\nBytes per key in Redis (MEMORY USAGE); in brackets with %s 512:\n", roomyHashes)
	for _, kind := range slices.Sorted(maps.Keys(r.Memory.Records)) {
		fmt.Fprintf(out, "%9.0f (%.0f)  %s (%d keys)\n", r.Memory.Records[kind].Bytes, r.Roomy.Records[kind].Bytes, kind, r.Memory.Records[kind].Keys)
	}
	r.Ratios.Print(out)
}
