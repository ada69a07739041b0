// Package streams is `bench streams`: it measures streams of session statuses. How soon does a payer see the end, what do idle streams
// cost, and do they slow down the API?
package streams

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
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
			"streams, of which the limit of open files may allow fewer than wanted.",
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
	EndCPU       float64       `json:"cpuMicrosPerEnd"` // more than for an end that nobody watches
	EndRedisCPU  float64       `json:"redisCPUMicrosPerEnd"`
	StreamMemory float64       `json:"bytesPerStream"`
	IdleCPU      float64       `json:"cpuMicrosPerStreamAndSecond"`
	AloneP99     time.Duration `json:"aloneP99Nanoseconds"` // of public reads and of charges
	BesideP99    time.Duration `json:"besideP99Nanoseconds"`
}

func (b *bench) run(ctx context.Context, out io.Writer) {
	var files syscall.Rlimit
	fixture.Check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	const others = 200 // files of this program and of the API that are no streams
	b.idle = min(b.idle, int(files.Cur)-others)
	b.redis = b.StartRedis(ctx)
	publisher := b.NewPublisher(ctx, fixture.Namespace)
	fixture.Must(publisher.Merchant(ctx, 0, ""))
	b.key = fixture.Must(publisher.Key(ctx, 0, 0, 1))
	const unlimited = "1000000"
	b.api = b.StartAPI(ctx, b.Kubeconfig, fixture.Namespace, b.redis.URL(), "--max-streams", unlimited, "--max-streams-per-address", unlimited)
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
	ratios["p99_beside_idle_streams"] = float64(m.BesideP99) / float64(m.AloneP99)
	fmt.Fprintf(out, "\n%s\n\n%d streams, of which each shows the end of its session: p50 %s, p99 %s\n%d idle streams: %.1f KiB each\n",
		report.DescribeMachine(), b.watched, report.Rounded(m.ShownP50), report.Rounded(m.ShownP99), b.idle, m.StreamMemory/1024)
	ratios.Print(out)
	fixture.Check(report.Save(b.Output, map[string]any{"idle": b.idle, "watched": b.watched, "samples": samples, "ratios": ratios}))
}

func (b *bench) newSession(ctx context.Context) string {
	request := fixture.CreateSession(b.key, `{"amountCents": 1250}`)
	answer := fixture.Must(request.Do(ctx, b.HTTP, "http://"+b.api.Address))
	var created struct {
		SessionID string `json:"sessionId"`
	}
	fixture.Check(json.Unmarshal([]byte(answer.Body), &created))
	return created.SessionID
}

// open opens a stream and reads the present status.
func (b *bench) open(ctx context.Context, session string) (net.Conn, *bufio.Reader) {
	conn := fixture.Must(new(net.Dialer).DialContext(ctx, "tcp", b.api.Address))
	request := fixture.PublicSession(session)
	request.Headers = append(request.Headers, "Accept: text/event-stream")
	fixture.Must(conn.Write(request.Bytes()))
	fixture.Check(conn.SetDeadline(time.Now().Add(10 * time.Minute)))
	lines := bufio.NewReaderSize(conn, 512)
	fixture.Check(awaitLine(lines, "event: expires-in"))
	return conn, lines
}

func awaitLine(lines *bufio.Reader, want string) error {
	for {
		if line, err := lines.ReadString('\n'); err != nil || strings.HasPrefix(line, want) {
			return err
		}
	}
}

// measureEnds ends sessions at a constant rate, first those that nobody watches.
func (b *bench) measureEnds(ctx context.Context, s *sample) {
	const pause = 4 * time.Millisecond
	end := func(sessions []string, ended []time.Time) (cpu, redis float64) {
		used := fixture.Use(ctx, func() {
			for i, session := range sessions {
				ended[i] = time.Now()
				fixture.Must(fixture.CancelSession(b.key, session).Do(ctx, b.HTTP, "http://"+b.api.Address))
				<-time.After(pause - time.Since(ended[i]))
			}
		}, b.api, b.redis)
		n := float64(len(sessions))
		return fixture.Micros(used.CPU) / n, fixture.Micros(used.AllRedis().CPU) / n
	}
	unwatched, watched := make([]string, b.watched), make([]string, b.watched)
	for i := range watched {
		unwatched[i], watched[i] = b.newSession(ctx), b.newSession(ctx)
	}
	ended, shown := make([]time.Time, b.watched), make([]time.Time, b.watched)
	cpu, redis := end(unwatched, ended)
	var reading sync.WaitGroup
	errs := make([]error, b.watched)
	for i, session := range watched {
		conn, lines := b.open(ctx, session)
		reading.Go(func() {
			errs[i] = awaitLine(lines, "id: CANCELLED")
			shown[i] = time.Now()
			_ = conn.Close()
		})
	}
	watchedCPU, watchedRedis := end(watched, ended)
	reading.Wait()
	took := make([]time.Duration, b.watched)
	for i := range took {
		fixture.Check(errs[i])
		took[i] = shown[i].Sub(ended[i])
	}
	slices.Sort(took)
	s.ShownP50, s.ShownP99 = took[len(took)*50/100], took[len(took)*99/100]
	s.EndCPU, s.EndRedisCPU = watchedCPU-cpu, watchedRedis-redis
}

// measureIdle measures the API without and beside idle streams.
func (b *bench) measureIdle(ctx context.Context, s *sample) {
	session := b.newSession(ctx)
	requests := [][]byte{fixture.PublicSession(session).Bytes(), fixture.CreateSession(b.key, `{"amountCents": 1250}`).Bytes()}
	p99 := func() (sum time.Duration) {
		for i, status := range []int{200, 201} {
			target := load.Target{Name: "beside streams", Next: func(int, int, []byte) []byte { return bytes.Clone(requests[i]) }, Status: status}
			measured, _ := b.api.Measure(ctx, target, load.Schedule{Connections: 16, WarmUp: time.Second, Duration: b.Length()}, b.redis)
			sum += measured.P99
		}
		return sum
	}
	s.AloneP99 = p99()
	before := b.api.Memory().Now
	streams := make([]net.Conn, 0, b.idle)
	for range b.idle {
		conn, _ := b.open(ctx, b.newSession(ctx))
		streams = append(streams, conn)
	}
	s.StreamMemory = float64(b.api.Memory().Now-before) / float64(b.idle)
	const quiet = 15 * time.Second // each stream has one heartbeat
	used := fixture.Use(ctx, func() { <-time.After(quiet) }, b.api)
	s.IdleCPU = fixture.Micros(used.CPU) / float64(b.idle) / quiet.Seconds()
	s.BesideP99 = p99()
	for _, conn := range streams {
		_ = conn.Close()
	}
	fixture.Check(fixture.Eventually(ctx, func() error {
		if open := fixture.Must(b.api.Metrics(ctx)).Sum("merchant_operator_streams"); open > 0 {
			return fmt.Errorf("%.0f streams are still open", open)
		}
		return nil
	}))
}
