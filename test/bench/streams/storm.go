package streams

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// StormCommand is `bench storm`.
func StormCommand() *cobra.Command {
	var options fixture.Options
	var replicas, streams int
	command := &cobra.Command{
		Use:   "storm",
		Short: "Measure streams of many payers, and their return after a restart",
		Long: "Opens streams on some replicas of the API, as many on each as the limit of open files allows, and ends some of the sessions.\n" +
			"Then replaces one replica, as a rollout does and by SIGKILL, and measures until its payers are back.",
		RunE: options.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) {
			s := &storm{bench: bench{Fixture: f}, streams: min(streams/replicas, maxStreams())}
			s.run(ctx, replicas, out)
		}),
	}
	options.AddFlags(command.Flags(), "bin/bench-storm.json")
	command.Flags().IntVar(&replicas, "replicas", 6, "number of replicas with streams")
	command.Flags().IntVar(&streams, "streams", 100_000, "number of streams on all of them")
	return command
}

// storm is streams on some replicas. The replica of bench has no streams: it creates and ends sessions while others are away.
type storm struct {
	bench

	streams  int // of each replica
	replicas []*fixture.Process
	payers   []*payers // of each replica
	pending  []string  // sessions, those of each replica after another's
}

// crowdResult is what open streams take and show. Memory is in bytes.
type crowdResult struct {
	Streams                  int
	Opening                  time.Duration
	PerStream                float64 // memory of the replicas
	Replicas, Payers, Redis  int     // memory
	CPU, PayersCPU, RedisCPU float64 // cores, while nothing happens
	ShownP50, ShownP99       time.Duration
	CreateP99, ReadP99       time.Duration
	Alive, Ended             int // after all storms
}

// stormResult is a return of all payers.
type stormResult struct {
	Name               string
	Took               time.Duration  // from the first signal until the last stream was open
	Failed             map[string]int // attempts that opened no stream, by reason
	CreateP99, ReadP99 time.Duration
	Refused            float64 // share of charges and reads that were not answered well
	MemoryMost         int     // of the replica
	CPU, RedisCPU      time.Duration
	Ended              int // sessions that ended while the payers were away
}

func (s *storm) run(ctx context.Context, replicas int, out io.Writer) {
	s.start(ctx)
	r := s.open(ctx, replicas)
	s.measureQuiet(ctx, &r)
	s.endSome(ctx, &r)
	s.print(out, &r)
	var storms []stormResult
	for _, kill := range []bool{false, true} {
		for _, atOnce := range []bool{false, true} {
			storms = append(storms, s.measureStorm(ctx, kill, atOnce))
			s.Progress("%+v", storms[len(storms)-1])
		}
	}
	<-time.After(heartbeat)
	now := sumReports(s.payers)
	r.Alive, r.Ended = now.Alive, len(now.Ended)
	s.printStorms(out, &r, storms)
	fixture.Check(report.Save(s.Output, map[string]any{"streams": r, "storms": storms}))
	if r.Alive != len(s.pending) {
		fixture.Check(fmt.Errorf("%d of %d streams had a heartbeat", r.Alive, len(s.pending)))
	}
}

func (s *storm) print(out io.Writer, r *crowdResult) {
	fmt.Fprintf(out, "\n%s\n\n%d streams on %d replicas, opened in %s\n", report.DescribeMachine(), r.Streams, len(s.replicas), r.Opening.Round(time.Second/10))
	fmt.Fprintf(out, "memory: replicas %d MiB, payers %d MiB, Redis %d MiB\nidle CPU, in cores: replicas %.3f, payers %.3f, Redis %.3f\n\n",
		r.Replicas/mib, r.Payers/mib, r.Redis/mib, r.CPU, r.PayersCPU, r.RedisCPU)
	report.Ratios{
		"storm_streams": float64(r.Streams), "storm_stream_kib": r.PerStream / 1024, "storm_idle_cores": r.CPU,
		"storm_shown_p50_ms": r.ShownP50.Seconds() * 1e3, "storm_shown_p99_ms": r.ShownP99.Seconds() * 1e3,
	}.Print(out)
}

const mib = 1 << 20

func (s *storm) printStorms(out io.Writer, r *crowdResult, storms []stormResult) {
	fmt.Fprintf(out, "\nat the end: %d of %d streams alive, %d ends shown, none lost\n\n", r.Alive, len(s.pending), r.Ended)
	table := report.Table(out, "\tall back after\tcreate p99\tread p99\tnot answered\tmost memory\tAPI CPU\tRedis CPU\tfailed attempts\t")
	fmt.Fprintf(table, "before\t\t%s\t%s\t\t\t\t\t\t\n", report.Rounded(r.CreateP99), report.Rounded(r.ReadP99))
	ratios := report.Ratios{}
	for _, one := range storms {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.4f\t%d MiB\t%s\t%s\t%v\t\n", one.Name, one.Took.Round(time.Millisecond), report.Rounded(one.CreateP99),
			report.Rounded(one.ReadP99), one.Refused, one.MemoryMost/mib, one.CPU.Round(time.Millisecond), one.RedisCPU.Round(time.Millisecond), one.Failed)
		ratios["storm_back_s"] = max(ratios["storm_back_s"], one.Took.Seconds())
		ratios["storm_create_p99_vs_quiet"] = max(ratios["storm_create_p99_vs_quiet"], float64(one.CreateP99)/float64(r.CreateP99))
	}
	fixture.Check(table.Flush())
	ratios.Print(out)
}

// open opens all streams.
func (s *storm) open(ctx context.Context, replicas int) (r crowdResult) {
	s.Progress("creating %d sessions", replicas*s.streams)
	s.pending = s.newSessions(ctx, replicas*s.streams)
	before := 0
	for range replicas {
		replica := s.startReplica(ctx)
		s.replicas, s.payers = append(s.replicas, replica), append(s.payers, startPayers(ctx, s.Fixture))
		before += replica.Memory().Now
	}
	began := time.Now()
	for i, sessions := range slices.Collect(slices.Chunk(s.pending, s.streams)) {
		s.payers[i].send(order{Address: s.replicas[i].Address, Sessions: sessions})
	}
	r.Opening = s.await(ctx, s.payers, len(s.pending), nil).Last.Sub(began)
	r.Streams = len(s.pending)
	for i, replica := range s.replicas {
		r.Replicas += replica.Memory().Now
		r.Payers += s.payers[i].Memory().Now
	}
	r.Redis, r.PerStream = s.redis.Memory().Now, float64(r.Replicas-before)/float64(r.Streams)
	return r
}

// measureQuiet measures what the streams take while nothing ends.
func (s *storm) measureQuiet(ctx context.Context, r *crowdResult) {
	const quiet = time.Minute // each stream has heartbeats and a reread
	s.Progress("%d streams are open after %s; waiting for their heartbeats", r.Streams, r.Opening.Round(time.Second))
	replicas, payers := s.cpu()
	used := fixture.Use(ctx, func() { <-time.After(quiet) }, s.api, s.redis)
	replicasAfter, payersAfter := s.cpu()
	r.CPU, r.PayersCPU = (replicasAfter-replicas).Seconds()/quiet.Seconds(), (payersAfter-payers).Seconds()/quiet.Seconds()
	r.RedisCPU = used.AllRedis().CPU.Seconds() / quiet.Seconds()
	if now := sumReports(s.payers); now.Alive != r.Streams {
		fixture.Check(fmt.Errorf("%d of %d streams had a heartbeat", now.Alive, r.Streams))
	}
	stop := probe(ctx, s.replicas[0].Address, s.key, s.pending[0])
	<-time.After(quiet / 4)
	create, read := stop()
	r.CreateP99, r.ReadP99 = create.Latencies.P99, read.Latencies.P99
}

func (s *storm) cpu() (replicas, payers time.Duration) {
	for i, replica := range s.replicas {
		replicas += replica.CPU()
		payers += s.payers[i].CPU()
	}
	return replicas, payers
}

// take returns n of the pending sessions, of all replicas, and leaves the others.
func (s *storm) take(n int) (taken []string) {
	step, left := len(s.pending)/n, []string{}
	for i, session := range s.pending {
		if i%step == 0 && len(taken) < n {
			taken = append(taken, session)
		} else {
			left = append(left, session)
		}
	}
	s.pending = left
	return taken
}

// endSome ends a sample of the sessions while all streams are open.
func (s *storm) endSome(ctx context.Context, r *crowdResult) {
	s.Progress("ending %d sessions", sampleSize)
	asked := s.cancel(ctx, s.take(sampleSize))
	r.ShownP50, r.ShownP99 = delays(asked, s.await(ctx, s.payers, len(s.pending), asked).Ended)
}

const sampleSize = 1000

// measureStorm replaces the first replica. A rollout starts the new one first. Payers connect to it as soon as it is ready.
func (s *storm) measureStorm(ctx context.Context, kill, atOnce bool) stormResult {
	const ends = sampleSize / 10
	r := stormResult{Name: map[bool]string{false: "rollout", true: "SIGKILL"}[kill] + map[bool]string{false: ", by retry", true: ", at once"}[atOnce], Ended: ends}
	s.Progress("%s", r.Name)
	var began time.Time
	var asked map[string]time.Time
	old, payers, before := s.replicas[0], s.payers[0], sumReports(s.payers)
	payers.send(order{Address: old.Address, AtOnce: atOnce})
	start := func() {
		s.replicas[0] = s.startReplica(ctx)
		payers.send(order{Address: s.replicas[0].Address, AtOnce: atOnce})
	}
	if kill {
		began = time.Now()
		old.Kill()
		asked = s.cancel(ctx, s.take(ends))
		start()
	} else {
		start()
		began = time.Now()
	}
	stop := probe(ctx, s.replicas[0].Address, s.key, s.pending[0])
	var now payersReport
	used := fixture.Use(ctx, func() {
		if !kill {
			var stopping sync.WaitGroup
			stopping.Go(old.Stop)
			asked = s.cancel(ctx, s.take(ends))
			stopping.Wait()
		}
		now = s.await(ctx, s.payers, len(s.pending), asked)
	}, s.replicas[0], s.redis)
	create, read := stop()
	r.Took, r.CPU, r.RedisCPU = now.Last.Sub(began), used.CPU, used.AllRedis().CPU
	r.CreateP99, r.ReadP99, r.Refused = create.Latencies.P99, read.Latencies.P99, 1-(create.Success+read.Success)/2
	r.Failed = now.Failed
	for reason, count := range before.Failed {
		r.Failed[reason] -= count
	}
	maps.DeleteFunc(r.Failed, func(_ string, count int) bool { return count == 0 })
	r.MemoryMost = s.replicas[0].Memory().Most
	return r
}

// probe charges, and reads as a payer, at a constant rate until the returned function is called.
func probe(ctx context.Context, address, key, session string) (stop func() (create, read vegeta.Metrics)) {
	requests := []load.Request{fixture.CreateSession(key, charge), fixture.PublicSession(session)}
	var n atomic.Uint64
	next := func(target *vegeta.Target) error {
		request := requests[n.Add(1)%uint64(len(requests))]
		*target = vegeta.Target{Method: request.Method, URL: "http://" + address + request.Path, Header: request.Header(), Body: []byte(request.Body)}
		return nil
	}
	attacker := vegeta.NewAttacker(vegeta.Timeout(10 * time.Second))
	results := attacker.Attack(next, vegeta.Rate{Freq: 500, Per: time.Second}, 0, "probe")
	var create, read vegeta.Metrics
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for result := range results {
			if result.Method == http.MethodPost {
				create.Add(result)
			} else {
				read.Add(result)
			}
		}
	}()
	ended := context.AfterFunc(ctx, func() { attacker.Stop() })
	return func() (vegeta.Metrics, vegeta.Metrics) {
		ended()
		attacker.Stop()
		<-finished
		create.Close()
		read.Close()
		return create, read
	}
}
