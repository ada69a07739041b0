// Package api is `bench api`: it measures the API beside servers that do the unavoidable minimum (the floors) and beside a simple
// implementation (the naive service), in turn on the same machine, so that it can print ratios.
package api

import (
	"bytes"
	"context"
	"encoding/json"
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
		Long: "Measures requests/s, latency, CPU and allocations of the API beside bare handlers (f1), handlers with one Redis\n" +
			"call (f2, f2get) and a naive service, at 16 and 128 connections, and at half of the maximum rate.",
		RunE: options.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) { (&bench{Fixture: f}).run(ctx, only, out) }),
	}
	options.AddFlags(command.Flags(), "bin/bench.json")
	options.AddRounds(command.Flags(), 5, 1)
	command.Flags().StringSliceVar(&only, "only", nil, "measure only these rows of the table, such as f2,create")
	return command
}

// The numbers of connections, and the pipeline lengths of redis-benchmark.
var (
	connections  = [...]int{16, 128}
	rawPipelines = [...]int{1, 16}
)

// results are all measurements of a run.
type results struct {
	Machine  string                  `json:"machine"`
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

	ScriptCost  float64 `json:"redisMicrosPerScript"` // as counted by Redis; 0 if no script was run
	Allocations float64 `json:"allocationsPerRequest"`
}

// bench is everything that runs.
type bench struct {
	*fixture.Fixture

	redis              *fixture.Redis
	api, floors, naive *fixture.Process
	merchant           fixture.Merchant
	key, rail          string // the API key, and a rail's token
	session            string // id of the session that is read
	recorded           recorded
	kept               map[string]keptKey
}

// run measures everything in turn, several times. Variants that are compared follow each other, so that other load on the machine
// affects both.
func (b *bench) run(ctx context.Context, only []string, out io.Writer) {
	b.Progress("starting Redis, the API, the floors and the naive service")
	b.start(ctx)
	all := b.variants()
	if len(only) > 0 {
		all = slices.DeleteFunc(all, func(v *variant) bool { return !slices.Contains(only, v.name) })
	}
	r := &results{Commands: map[string]float64{}, Samples: map[string][]sample{}, Raw: map[string][]rawSample{}, Ratios: report.Ratios{}}
	for _, v := range all {
		r.names = append(r.names, v.name)
		r.Commands[v.name] = b.countCommands(ctx, v)
	}
	for round := range b.Rounds {
		b.Progress("round %d of %d", round+1, b.Rounds)
		for _, n := range connections {
			for _, v := range all {
				key := sampleKey(v.name, n)
				r.Samples[key] = append(r.Samples[key], b.measure(ctx, v, n))
			}
		}
		for _, pipeline := range rawPipelines {
			r.Raw[rawKey(pipeline)] = append(r.Raw[rawKey(pipeline)], b.measureRaw(ctx, pipeline))
		}
	}
	b.Progress("measuring at half of the maximum rate")
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

// measure measures a variant once.
func (b *bench) measure(ctx context.Context, v *variant, connections int) sample {
	b.reset(ctx)
	mallocs := v.server.Mallocs(ctx)
	schedule := load.Schedule{Connections: connections, WarmUp: warmUp, Duration: b.Length()}
	base, used := v.server.Measure(ctx, v.target(), schedule, b.redis)
	redis := used.AllRedis()
	return sample{
		Sample: base, ScriptCost: redis.ScriptMicros / max(redis.Scripts, 1),
		Allocations: (v.server.Mallocs(ctx) - mallocs) / base.Answered,
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
		compare("rail_read_vs_f2get", railRead, readFloor, n, perSecond)
		compare("hold_vs_f2", hold, createFloor, n, perSecond)
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
	// A ratio of medians: the p99 of single rounds varies too much for ratios within a round.
	if len(r.Open[create]) > 0 && len(r.Open[createFloor]) > 0 {
		r.Ratios["p99_half_load_vs_f2"] = float64(report.Medians(r.Open[create]).P99) / float64(report.Medians(r.Open[createFloor]).P99)
	}
}

// print writes a table for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n\n", r.Machine)
	table := report.Table(out, "\tconnections\trequests/s\tp50\tp99\tserver CPU µs\tRedis CPU µs\tscript µs\tcommands\tallocations\t")
	for _, n := range connections {
		for _, name := range r.names {
			m := report.Medians(r.Samples[sampleKey(name, n)])
			fmt.Fprintf(table, "%s\t%d\t%.0f\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t\n", name, n,
				m.PerSecond, report.Rounded(m.P50), report.Rounded(m.P99), m.CPUMicros, m.RedisCPU, m.ScriptCost, r.Commands[name], m.Allocations)
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
			fmt.Fprintf(out, "%s at a constant rate of %.0f/s: p50 %s, p99 %s\n", name, m.PerSecond, report.Rounded(m.P50), report.Rounded(m.P99))
		}
	}
	r.Ratios.Print(out)
}

const charge = `{"amountCents": 1250, "orderRef": "table 7, order 4711", "taxCents": 200, "tipCents": 100}`

func (b *bench) start(ctx context.Context) {
	b.redis = b.StartRedis(ctx)
	publisher := b.NewPublisher(ctx, fixture.Namespace)
	b.merchant = fixture.Must(publisher.Merchant(ctx, 0, ""))
	b.key, b.rail = fixture.Must(publisher.Key(ctx, 0, 0, 1)), publisher.RailToken(ctx)
	b.api = b.StartAPI(ctx, b.Kubeconfig, fixture.Namespace, b.redis.URL())
	b.recordAPI(ctx)
	b.floors = b.startServer(ctx, serverSpec{Floors: b.recorded})
	b.naive = b.startServer(ctx, serverSpec{NaiveRedis: b.redis.Addr()})
}

func (b *bench) startServer(ctx context.Context, spec serverSpec) *fixture.Process {
	server, address := b.StartSelf(ctx, bytes.NewReader(fixture.Must(json.Marshal(spec))), serveCommand)
	server.Address, server.Ops = address, "http://"+address
	return server
}

// recordAPI records what the API sends to Redis to create and to read a session, and keeps the session that is read.
func (b *bench) recordAPI(ctx context.Context) {
	created, answer := b.record(ctx, fixture.CreateSession(b.key, charge))
	b.recorded = recorded{Redis: b.redis.URL(), Create: call{created, createdID(answer)}, CreateAnswer: answer.Body}
	b.session = createdID(b.ask(ctx, replayRequest(b.key)))
	b.keep(ctx)
	read, answer := b.record(ctx, fixture.PublicSession(b.session))
	b.recorded.Read, b.recorded.ReadAnswer = call{read, b.session}, answer.Body
}

// record sends a request for which the API sends one command to Redis, and returns that command.
func (b *bench) record(ctx context.Context, request load.Request) (sent []string, answer load.Answer) {
	b.ask(ctx, request) // loads the script
	all := fixture.Commands(ctx, func() { answer = b.ask(ctx, request) }, b.redis)
	if len(all) != 1 {
		fixture.Check(fmt.Errorf("the API sent %d commands for one request, not 1: %q", len(all), all))
	}
	return all[0], answer
}

func (b *bench) ask(ctx context.Context, request load.Request) load.Answer {
	answer := fixture.Must(request.Do(ctx, b.HTTP, "http://"+b.api.Address))
	if answer.Status != request.Status {
		fixture.Check(fmt.Errorf("%s %s: status %d: %s", request.Method, request.Path, answer.Status, answer.Body))
	}
	return answer
}

func createdID(answer load.Answer) string {
	var created struct {
		SessionID string `json:"sessionId"`
	}
	_ = json.Unmarshal([]byte(answer.Body), &created) // a request with an empty id is answered with 404
	return created.SessionID
}

// keptKey is a key that reset restores.
type keptKey struct {
	dump string
	ttl  time.Duration
}

// keep saves all keys of Redis for reset.
func (b *bench) keep(ctx context.Context) {
	b.kept = map[string]keptKey{}
	for _, key := range fixture.Must(b.redis.Keys(ctx, "*").Result()) {
		ttl := fixture.Must(b.redis.PTTL(ctx, key).Result())
		if dump, err := b.redis.Dump(ctx, key).Result(); err == nil { // else it has expired
			b.kept[key] = keptKey{dump, max(ttl, 0)}
		}
	}
}

// reset empties Redis except for the kept keys, so that each measurement starts with the same data.
func (b *bench) reset(ctx context.Context) {
	fixture.Check(b.redis.Do(ctx, "FLUSHALL", "SYNC").Err())
	for key, kept := range b.kept {
		fixture.Check(b.redis.Restore(ctx, key, kept.ttl, kept.dump).Err())
	}
	fixture.Check(registerNaive(ctx, b.redis, b.key, b.merchant.Name))
}
