// Package streams is `bench streams`: it measures streams of session statuses. How soon does a payer see the end, what do idle streams
// cost, and do they slow down the API?
package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// Command is `bench streams`.
func Command() *cobra.Command {
	var options fixture.Options
	var idle, watched int
	command := &cobra.Command{
		Use:   "streams",
		Short: "Measure streams of session statuses",
		Long: "Ends sessions that have a stream each, and measures until the stream shows it. Then measures the API without and beside idle\n" +
			"streams, of which the limit of open files may allow fewer.",
		RunE: options.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) {
			(&bench{Fixture: f, idle: idle, watched: watched}).run(ctx, out)
		}),
	}
	options.AddFlags(command.Flags(), "bin/bench-streams.json")
	options.AddRounds(command.Flags(), 3, 2)
	command.Flags().IntVar(&idle, "idle", 20_000, "number of idle streams")
	command.Flags().IntVar(&watched, "watched", 1000, "number of sessions with a stream that end")
	return command
}

type bench struct {
	*fixture.Fixture

	idle, watched int
	redis         *fixture.Redis
	api           *fixture.Process
	key           string
}

// sample is one round.
type sample struct {
	ShownP50     time.Duration `json:"shownP50Nanoseconds"` // from the request that ends a session
	ShownP99     time.Duration `json:"shownP99Nanoseconds"`
	EndCPU       float64       `json:"cpuMicrosPerEnd"` // more than for an end without streams
	EndRedisCPU  float64       `json:"redisCPUMicrosPerEnd"`
	StreamMemory float64       `json:"bytesPerStream"`
	IdleCPU      float64       `json:"cpuMicrosPerStreamAndSecond"`
	// Without streams, with those of another replica, and with its own.
	Alone     served `json:"alone"`
	Elsewhere served `json:"elsewhere"`
	Beside    served `json:"beside"`
	// PayersCPU is what the payers' process takes meanwhile, in cores.
	PayersCPU float64 `json:"payersCores"`
}

// served is the sum of public reads and charges, at the same rate in all of a round.
type served struct {
	P99 time.Duration `json:"p99Nanoseconds"`
	CPU float64       `json:"cpuMicros"` // of the API
}

func (b *bench) run(ctx context.Context, out io.Writer) {
	b.idle = min(b.idle, maxStreams())
	b.start(ctx)
	var samples []sample
	for round := range b.Rounds {
		b.Progress("round %d of %d", round+1, b.Rounds)
		var s sample
		b.measureEnds(ctx, &s)
		b.measureIdle(ctx, &s)
		samples = append(samples, s)
	}
	m, ratios := report.Medians(samples), report.Ratios{}
	ratios["stream_shown_p50_ms"], ratios["stream_shown_p99_ms"] = m.ShownP50.Seconds()*1e3, m.ShownP99.Seconds()*1e3
	ratios["stream_kib"], ratios["stream_idle_cpu_us_per_s"] = m.StreamMemory/1024, m.IdleCPU
	ratios["stream_end_cpu_us"], ratios["stream_end_redis_us"] = m.EndCPU, m.EndRedisCPU
	// The payers take CPU of the same machine, so the streams of another replica are the floor.
	ratios["p99_beside_idle_streams"] = float64(m.Beside.P99) / float64(m.Elsewhere.P99)
	ratios["p99_beside_payers"] = float64(m.Elsewhere.P99) / float64(m.Alone.P99)
	ratios["cpu_beside_idle_streams"] = m.Beside.CPU / m.Elsewhere.CPU
	ratios["payers_cores"] = m.PayersCPU
	fmt.Fprintf(out, "\n%s\n\n%d streams, of which each shows the end of its session: p50 %s, p99 %s\n%d idle streams: %.1f KiB each\n",
		report.DescribeMachine(), b.watched, report.Rounded(m.ShownP50), report.Rounded(m.ShownP99), b.idle, m.StreamMemory/1024)
	ratios.Print(out)
	fixture.Check(report.Save(b.Output, map[string]any{"idle": b.idle, "watched": b.watched, "samples": samples, "ratios": ratios}))
}

// maxStreams is how many streams one process may have, by its limit of open files.
func maxStreams() int {
	var files syscall.Rlimit
	fixture.Check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	const others = 200 // files that are no streams
	return int(files.Cur) - others
}

func (b *bench) start(ctx context.Context) {
	b.redis = b.StartRedis(ctx)
	publisher := b.NewPublisher(ctx, fixture.Namespace)
	fixture.Must(publisher.Merchant(ctx, 0, ""))
	b.key = fixture.Must(publisher.Key(ctx, 0, 0, 1))
	b.api = b.startReplica(ctx)
}

func (b *bench) startReplica(ctx context.Context) *fixture.Process {
	const unlimited = "1000000"
	return b.StartAPI(ctx, b.Kubeconfig, fixture.Namespace, b.redis.URL(), "--max-streams", unlimited, "--max-connections", unlimited)
}

func (b *bench) newSessions(ctx context.Context, n int) []string {
	const workers = 8
	sessions := make([]string, n)
	request := fixture.CreateSession(b.key, charge)
	fixture.Check(fixture.Each(ctx, workers, n, func(ctx context.Context, i int) error {
		answer, err := request.Do(ctx, b.HTTP, "http://"+b.api.Address)
		if err != nil {
			return err
		}
		var created struct {
			SessionID string `json:"sessionId"`
		}
		err = json.Unmarshal([]byte(answer.Body), &created)
		sessions[i] = created.SessionID
		return err
	}))
	return sessions
}

// repeat returns the same request each time.
func repeat(request load.Request) func(int, int, []byte) []byte {
	encoded := request.Bytes()
	return func(int, int, []byte) []byte { return encoded }
}

const charge = `{"amountCents": 1250}`

// cancel ends sessions at a constant rate, and returns when it asked for each.
func (b *bench) cancel(ctx context.Context, sessions []string) map[string]time.Time {
	const pause = 4 * time.Millisecond
	asked := map[string]time.Time{}
	for _, session := range sessions {
		asked[session] = time.Now()
		fixture.Check(fixture.Eventually(ctx, func() error { // 503 while others crowd Redis: a repeated cancel is safe
			answer, err := fixture.CancelSession(b.key, session).Do(ctx, b.HTTP, "http://"+b.api.Address)
			if err == nil && answer.Status != http.StatusOK {
				err = fmt.Errorf("cancel a session: status %d", answer.Status)
			}
			return err
		}))
		<-time.After(pause - time.Since(asked[session]))
	}
	return asked
}

// await returns when all payers together have so many streams, and have been shown the ends of these sessions.
func (b *bench) await(ctx context.Context, all []*payers, open int, ended map[string]time.Time) payersReport {
	const patience, pause = 5 * time.Minute, 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for began, said := time.Now(), time.Now(); ; {
		now, missing := sumReports(all), 0
		for session := range ended {
			if _, shown := now.Ended[session]; !shown {
				missing++
			}
		}
		if now.Open == open && missing == 0 {
			return now
		}
		if time.Since(said) > pause {
			said = time.Now()
			b.Progress("%d of %d open after %s, %d ends not shown yet, failed attempts %v", now.Open, open, time.Since(began).Round(time.Second), missing, now.Failed)
		}
		select {
		case <-ctx.Done():
			fixture.Check(fmt.Errorf("%d of %d streams are open, %d ends are not shown: %w", now.Open, open, missing, ctx.Err()))
		case <-ticker.C:
		}
	}
}

// delays returns the median and the 99th percentile of the time from the requests that ended sessions to their events.
func delays(asked, shown map[string]time.Time) (p50, p99 time.Duration) {
	var took []time.Duration
	for session, at := range asked {
		took = append(took, shown[session].Sub(at))
	}
	slices.Sort(took)
	return took[len(took)*50/100], took[len(took)*99/100]
}

// measureEnds ends sessions at a constant rate, first those without streams.
func (b *bench) measureEnds(ctx context.Context, s *sample) {
	end := func(sessions []string) (asked map[string]time.Time, cpu, redis float64) {
		used := fixture.Use(ctx, func() { asked = b.cancel(ctx, sessions) }, b.api, b.redis)
		n := float64(len(sessions))
		return asked, fixture.Micros(used.CPU) / n, fixture.Micros(used.AllRedis().CPU) / n
	}
	unwatched, watched := b.newSessions(ctx, b.watched), b.newSessions(ctx, b.watched)
	_, cpu, redis := end(unwatched)
	payers := []*payers{b.openStreams(ctx, b.api, watched)}
	defer payers[0].Stop()
	asked, watchedCPU, watchedRedis := end(watched)
	s.ShownP50, s.ShownP99 = delays(asked, b.await(ctx, payers, 0, asked).Ended)
	s.EndCPU, s.EndRedisCPU = watchedCPU-cpu, watchedRedis-redis
}

func (b *bench) openStreams(ctx context.Context, of *fixture.Process, sessions []string) *payers {
	p := startPayers(ctx, b.Fixture)
	p.send(order{Address: of.Address, Sessions: sessions})
	b.await(ctx, []*payers{p}, len(sessions), nil)
	return p
}

// measureIdle measures the API without and beside idle streams, at half of its maximum rate.
func (b *bench) measureIdle(ctx context.Context, s *sample) {
	session := b.newSessions(ctx, 1)[0]
	targets := []load.Target{
		{Name: "public reads", Next: repeat(fixture.PublicSession(session)), Status: http.StatusOK},
		{Name: "charges", Next: repeat(fixture.CreateSession(b.key, charge)), Status: http.StatusCreated},
	}
	rates := make([]float64, len(targets))
	measure := func() (sum served) {
		for i, target := range targets {
			schedule := load.Schedule{Connections: 16, WarmUp: time.Second, Duration: b.Length(), PerSecond: rates[i]}
			measured, _ := b.api.Measure(ctx, target, schedule, b.redis)
			if rates[i] == 0 {
				rates[i] = measured.PerSecond / 2
			}
			sum.P99 += measured.P99
			sum.CPU += measured.CPUMicros
		}
		return sum
	}
	sessions := b.newSessions(ctx, b.idle)
	measure() // the maximum
	s.Alone = measure()
	const quiet = 15 * time.Second // each stream has one heartbeat
	own, other := b.api, b.startReplica(ctx)
	payers := b.openStreams(ctx, other, sessions)
	<-time.After(quiet)
	used := fixture.Use(ctx, func() { s.Elsewhere = measure() }, payers.Process)
	s.PayersCPU = used.CPU.Seconds() / used.Took.Seconds()
	payers.Stop()
	other.Stop()
	before := own.Memory().Now
	payers = b.openStreams(ctx, own, sessions)
	s.StreamMemory = float64(own.Memory().Now-before) / float64(b.idle)
	used = fixture.Use(ctx, func() { <-time.After(quiet) }, own)
	s.IdleCPU = fixture.Micros(used.CPU) / float64(b.idle) / quiet.Seconds()
	s.Beside = measure()
	payers.Stop()
	fixture.Check(fixture.Eventually(ctx, func() error {
		if open := fixture.Must(b.api.Metrics(ctx)).Sum("merchant_operator_streams"); open > 0 {
			return fmt.Errorf("%.0f streams are still open", open)
		}
		return nil
	}))
}
