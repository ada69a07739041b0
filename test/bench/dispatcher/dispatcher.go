// Package dispatcher is `bench dispatcher`: it measures the dispatcher's CPU for an event beside a bare HTTP client that posts the same
// bytes to the same receivers, the delay until the first attempt, also while endpoints hang or are slow, and the cost of an idle dispatcher.
package dispatcher

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// The load. Each merchant has an endpoint of its own. The dispatcher's default is 8 concurrent attempts to each.
const (
	merchants   = 64
	perEndpoint = 8
	// manyMerchants are those of the measurement in which some endpoints hang or are slow.
	manyMerchants, hangingEndpoints, slowEndpoints = 1000, 100, 64
	isolationTime                                  = 20 * time.Second
	// hangs is longer than the timeout of an attempt, and slowAnswer shorter. slowBacklog are the events that wait for each slow endpoint.
	hangs, slowAnswer = time.Hour, 10 * time.Second
	slowBacklog       = 500
	// constantRate is the rate in events per second for which docs/performance.md promises a delay.
	constantRate = 500
)

// Command is `bench dispatcher`.
func Command() *cobra.Command {
	var options fixture.Options
	var events int
	var flags []string
	command := &cobra.Command{
		Use:   "dispatcher",
		Short: "Measure the CPU for an event, and its delay",
		Long: "Measures the CPU for an event beside a bare HTTP client that posts the same bytes, the delay of events at a constant rate,\n" +
			"and the cost of an idle dispatcher.",
		RunE: options.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) {
			(&bench{Fixture: f, events: events, flags: flags}).run(ctx, out)
		}),
	}
	options.AddFlags(command.Flags(), "bin/bench-dispatcher.json")
	options.AddRounds(command.Flags(), 3, 10)
	command.Flags().IntVar(&events, "events", 20_000, "number of events in a round")
	command.Flags().StringArrayVar(&flags, "flag", nil, "flag of the dispatcher, such as --flag=--webhook-concurrency=16")
	command.Flags().Lookup("seconds").Usage = "length of the measurement at a constant rate, in seconds; the idle one takes six times as long"
	return command
}

// results are all measurements of a run.
type results struct {
	Machine    string        `json:"machine"`
	Throughput []throughput  `json:"throughput"`
	TLS        []throughput  `json:"throughputTLS"`
	NoneHang   []isolation   `json:"noneHang"`
	SomeHang   []isolation   `json:"someHang"`
	SomeSlow   []isolation   `json:"someSlow"`
	Lag        []lag         `json:"lag"`
	Idle       []idle        `json:"idle"`
	Ratios     report.Ratios `json:"ratios"`
}

// bench is everything that runs.
type bench struct {
	*fixture.Fixture

	events    int
	redis     *fixture.Redis
	store     *store.Store // makes events as the API does
	publisher *fixture.Publisher
	// plain and secure are merchants by the scheme of their endpoints; hosts are the endpoints of plain.
	plain, secure []fixture.Merchant
	hosts         []string
	receiver      receiver
	flags         []string // of the dispatcher
	dispatcher    *fixture.Process
}

func (b *bench) run(ctx context.Context, out io.Writer) {
	b.Progress("starting Redis, the receiver and the dispatcher")
	b.start(ctx)
	r := results{Ratios: report.Ratios{}}
	// The first round opens the connections and is not counted.
	for round := range b.Rounds + 1 {
		b.Progress("%d events, round %d of %d", b.events, round, b.Rounds)
		plain, secure := b.measureThroughput(ctx, b.plain), b.measureThroughput(ctx, b.secure)
		if round > 0 {
			r.Throughput, r.TLS = append(r.Throughput, plain), append(r.TLS, secure)
		}
	}
	b.Progress("%d events a second for %s", constantRate, b.Length())
	r.Lag = []lag{b.measureLag(ctx)}
	rest := 6 * b.Length() // by default four times the longest interval of a dispatcher
	b.Progress("idle for %s", rest)
	r.Idle = []idle{b.measureIdle(ctx, rest)}
	b.publishPlain(ctx, manyMerchants-merchants)
	for round := range b.Rounds {
		b.Progress("%d endpoints, of which %d hang, %d are slow, and none, round %d of %d", manyMerchants, hangingEndpoints, slowEndpoints, round+1, b.Rounds)
		r.NoneHang = append(r.NoneHang, b.measureIsolation(ctx, 0, 0, 0))
		r.SomeHang = append(r.SomeHang, b.measureIsolation(ctx, hangingEndpoints, hangs, 0))
		r.SomeSlow = append(r.SomeSlow, b.measureIsolation(ctx, slowEndpoints, slowAnswer, slowBacklog))
	}
	r.Machine = report.DescribeMachine()
	r.print(out)
	fixture.Check(report.Save(b.Output, r))
}

// start starts everything.
func (b *bench) start(ctx context.Context) {
	b.redis = b.StartRedis(ctx)
	client := fixture.Must(redis.Open(redis.Options{URL: b.redis.URL(), Timeout: time.Minute}))
	b.OnStop(client.Close)
	b.store = fixture.Must(store.New(client, store.Options{}))
	b.publisher = b.NewPublisher(ctx, fixture.Namespace)
	b.publishPlain(ctx, merchants)
	b.secure = b.publish(ctx, "https://", b.receiver.start(ctx, b.Fixture, merchants, testTLS(b.Fixture)), manyMerchants)
	b.startDispatcher(ctx)
}

// publishPlain publishes more merchants with endpoints over plain HTTP.
func (b *bench) publishPlain(ctx context.Context, more int) {
	hosts := b.receiver.start(ctx, b.Fixture, more, nil)
	b.plain = append(b.plain, b.publish(ctx, "http://", hosts, len(b.plain))...)
	b.hosts = append(b.hosts, hosts...)
}

// publish publishes a merchant for each host. The first has this number.
func (b *bench) publish(ctx context.Context, scheme string, hosts []string, first int) (published []fixture.Merchant) {
	for i, host := range hosts {
		published = append(published, fixture.Must(b.publisher.Merchant(ctx, first+i, scheme+host+"/hooks")))
	}
	return published
}

// startDispatcher waits until it has delivered an event of each merchant.
func (b *bench) startDispatcher(ctx context.Context) {
	b.dispatcher = b.StartRole(ctx, "dispatcher", b.Kubeconfig, fixture.Namespace, append([]string{
		"--redis-url", b.redis.URL(), "--webhook-allow-http", "--webhook-allow-cidrs", "127.0.0.0/8",
		"--webhook-concurrency", strconv.Itoa(perEndpoint),
	}, b.flags...)...)
	b.receiver.reset()
	b.cancelAll(ctx, b.create(ctx, b.plain, len(b.plain)))
	b.receiver.await(ctx, len(b.plain))
}

// pending is a pending session.
type pending struct {
	merchantID string
	id         session.ID
}

const creators = 64

// create creates sessions, for each of the merchants in turn.
func (b *bench) create(ctx context.Context, merchants []fixture.Merchant, count int) []pending {
	sessions := make([]pending, count)
	fixture.Check(fixture.Each(ctx, creators, count, func(ctx context.Context, i int) error {
		merchant := merchants[i%len(merchants)]
		_, created, err := b.store.CreateSession(ctx, asking(merchant.ID), store.NewSession{
			MerchantName: merchant.Name, Charge: session.Charge{AmountCents: 1250, OrderRef: fmt.Sprintf("order-%06d", i)},
			Lifetime: 24 * time.Hour,
		})
		sessions[i] = pending{merchant.ID, created.Session.ID}
		return err
	}))
	return sessions
}

// cancelAll cancels the sessions, which creates an event for each.
func (b *bench) cancelAll(ctx context.Context, sessions []pending) {
	fixture.Check(fixture.Each(ctx, creators, len(sessions), func(ctx context.Context, i int) error { return b.cancel(ctx, sessions[i]) }))
}

func (b *bench) cancel(ctx context.Context, one pending) error {
	_, _, err := b.store.Cancel(ctx, asking(one.merchantID), one.id)
	return err
}

func asking(merchantID string) admission.Request {
	return admission.Request{
		MerchantID: merchantID, KeyID: "till", Digest: apikey.NewDigest("key"), Accepted: true,
		Limit: ratelimit.Policy{RequestsPerSecond: fixture.UnlimitedRate, Burst: fixture.UnlimitedRate},
	}
}

// print writes a table for people and a line for each ratio for programs.
func (r *results) print(out io.Writer) {
	for name, rounds := range map[string][]throughput{"dispatch_vs_floor": r.Throughput, "dispatch_tls_vs_floor": r.TLS} {
		var dispatchers, floors []delivering
		for _, t := range rounds {
			dispatchers, floors = append(dispatchers, t.Dispatcher), append(floors, t.Floor)
		}
		report.Compare(r.Ratios, name, dispatchers, floors, func(d delivering) float64 { return d.PerCore })
	}
	report.Compare(r.Ratios, "lag_p99_hanging_vs_none", r.SomeHang, r.NoneHang, func(i isolation) float64 { return float64(i.P99) })
	report.Compare(r.Ratios, "lag_p99_slow_vs_none", r.SomeSlow, r.NoneHang, func(i isolation) float64 { return float64(i.P99) })
	for _, i := range slices.Concat(r.NoneHang, r.SomeHang, r.SomeSlow) {
		r.Ratios["healthy_delivered_again"] += float64(i.Repeated)
	}
	r.Ratios["events_delivered_again"] = float64(report.Medians(r.Throughput).Repeated)
	lag, idle := r.Lag[0], r.Idle[0]
	r.Ratios["first_attempt_lag_p99_ms"] = fixture.Micros(lag.P99) / 1000
	r.Ratios["idle_scripts_per_second"] = idle.Scripts
	r.Ratios["idle_commands_per_second"] = idle.Commands
	r.Ratios["idle_cpu_percent"] = idle.CPU
	r.Ratios["idle_redis_cpu_percent"] = idle.RedisCPU

	fmt.Fprintf(out, "\n%s\n\n", r.Machine)
	table := report.Table(out, "\tevents/s\tevents/CPU s\tCPU µs\tconnections\tallocations\tRedis CPU µs\tscript µs\tscripts\t")
	for i, t := range slices.Concat(r.Throughput, r.TLS) {
		if i == len(r.Throughput) {
			fmt.Fprintln(table, "with TLS\t\t\t\t\t\t\t\t\t")
		}
		fmt.Fprintf(table, "dispatcher\t%.0f\t%.0f\t%.1f\t%d\t%.0f\t%.1f\t%.1f\t%.2f\t\n", t.Dispatcher.PerSecond, t.Dispatcher.PerCore,
			t.Dispatcher.CPU, t.Dispatcher.Connections, t.Allocations, t.RedisCPU, t.ScriptMicros, t.Scripts)
		fmt.Fprintf(table, "floor\t%.0f\t%.0f\t%.1f\t%d\t\t\t\t\t\n", t.Floor.PerSecond, t.Floor.PerCore, t.Floor.CPU, t.Floor.Connections)
	}
	_ = table.Flush() // errors of out are not handled anywhere
	rounded := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	fmt.Fprintf(out, "\nat %d events/s: first attempts after %s (p50), %s (p99), %s (max); load up to %s behind schedule; CPU µs per event: %.1f, Redis %.1f\n",
		constantRate, rounded(lag.P50), rounded(lag.P99), rounded(lag.Max), rounded(lag.Late), lag.CPU, lag.RedisCPU)
	for i := range r.SomeHang {
		fmt.Fprintf(out, "lag of the good ones of %d endpoints:", manyMerchants)
		for _, row := range []struct {
			what string
			isolation
		}{{"all are good", r.NoneHang[i]}, {fmt.Sprintf("%d hang", hangingEndpoints), r.SomeHang[i]}, {fmt.Sprintf("%d answer after %s", slowEndpoints, slowAnswer), r.SomeSlow[i]}} {
			fmt.Fprintf(out, " %s: p50 %s, p99 %s, max %s of %d events;", row.what, rounded(row.P50), rounded(row.P99), rounded(row.Max), row.Events)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "idle: %.2f %% of a core, Redis %.2f %%; %.1f scripts/s, %.1f commands/s\n", idle.CPU, idle.RedisCPU, idle.Scripts, idle.Commands)
	r.Ratios.Print(out)
}
