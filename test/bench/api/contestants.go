package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
)

// The contestants, as the JSON and the ratios name them.
const (
	bareFloor    = "f1"
	createFloor  = "f2"
	readFloor    = "f2get"
	naiveCreate  = "naive"
	create       = "create"
	createOnce   = "create_idempotent"
	replay       = "replay"
	read         = "read"
	publicRead   = "public"
	merchantMe   = "merchant_me"
	unauthorized = "unauthorized"
)

// contestant is one server with one kind of request.
type contestant struct {
	name    string
	server  *fixture.Process
	request load.Request
}

// contestants are in the order of the table. The floors are sent the same bytes as the product, but for the path.
func (b *bench) contestants() []*contestant {
	refused := fixture.CreateSession(fixture.UnknownKeys(1)[0], charge)
	refused.Status = http.StatusUnauthorized
	plain, public := fixture.CreateSession(b.key, charge), fixture.PublicSession(b.session)
	return []*contestant{
		{bareFloor, b.floors, plain.To(barePath)},
		{createFloor, b.floors, plain.To(createPath)},
		{create, b.product, plain},
		{naiveCreate, b.naive, plain},
		{createOnce, b.product, fixture.CreateSession(b.key, charge, "Idempotency-Key: "+oncePrefix+"000000000000")},
		{replay, b.product, replayRequest(b.key)},
		{readFloor, b.floors, public.To(readPath)},
		{publicRead, b.product, public},
		{read, b.product, fixture.ReadSession(b.key, b.session)},
		{merchantMe, b.product, fixture.ReadProfile(b.key)},
		{unauthorized, b.product, refused},
	}
}

func replayRequest(key string) load.Request {
	return fixture.CreateSession(key, charge, "Idempotency-Key: replayed")
}

// oncePrefix comes before a number that each request has for itself.
const oncePrefix = "till-1-"

func (c *contestant) target() load.Target {
	next := func(connection, n int, before []byte) []byte {
		if before == nil {
			before = c.request.Bytes()
		}
		if at := bytes.Index(before, []byte(oncePrefix)); at >= 0 {
			copy(before[at+len(oncePrefix):], fmt.Appendf(nil, "%04d%08d", connection, n))
		}
		return before
	}
	return load.Target{Name: c.name, Address: c.server.Address, Next: next, Status: c.request.Status}
}

// countCommands counts how many commands a contestant sends to Redis for each request.
func (b *bench) countCommands(ctx context.Context, c *contestant) float64 {
	const some = 20
	b.renew(ctx)
	fixture.Check(load.Times(ctx, c.target(), 2)) // loads scripts, and notes the last use of the key
	sent := fixture.Commands(ctx, func() { fixture.Check(load.Times(ctx, c.target(), some)) }, b.redis)
	return float64(len(sent)) / some
}

// rawSample is the shipped create script at the end of redis-benchmark: what Redis can do, whoever asks.
type rawSample struct {
	PerSecond  float64 `json:"perSecond"`
	ScriptCost float64 `json:"redisMicrosPerScript"`
}

// measureRaw has redis-benchmark create sessions, each with an id of its own.
func (b *bench) measureRaw(ctx context.Context, pipeline int) rawSample {
	b.renew(ctx)
	const perSecond = 60_000           // about; redis-benchmark takes a number of calls, not of seconds
	const placeholder = "__rand_int__" // redis-benchmark puts twelve digits there
	_, port, _ := strings.Cut(b.redis.Addr(), ":")
	args := []string{
		"-p", port, "-c", "50", "-P", strconv.Itoa(pipeline), "-n", strconv.Itoa(int(perSecond * b.Seconds)), "-r", "1000000000", "--csv",
	}
	session := b.plan.Create.Session
	for _, word := range b.plan.Create.Words {
		args = append(args, strings.ReplaceAll(word, session, session[:len(session)-len(placeholder)]+placeholder))
	}
	var text []byte
	used := fixture.Use(ctx, func() {
		text = fixture.Must(exec.CommandContext(ctx, "redis-benchmark", args...).Output())
	}, b.product, b.redis).AllRedis()
	rows := fixture.Must(csv.NewReader(bytes.NewReader(text)).ReadAll())
	if len(rows) < 2 || len(rows[1]) < 2 {
		fixture.Check(fmt.Errorf("redis-benchmark printed %q", text))
	}
	return rawSample{fixture.Must(strconv.ParseFloat(rows[1][1], 64)), used.ScriptMicros / max(used.Scripts, 1)}
}

// openSample is what requests saw that came at a constant rate, whether or not the earlier ones had been answered.
type openSample struct {
	PerSecond float64       `json:"perSecond"`
	P50       time.Duration `json:"p50Nanoseconds"`
	P99       time.Duration `json:"p99Nanoseconds"`
	Max       time.Duration `json:"maxNanoseconds"`
	Success   float64       `json:"success"`
}

// measureHalfLoad measures the product and its floor in turn, at half of what the product can do at most. vegeta measures the maximum
// too, for it needs more of the processors than the product does.
func (b *bench) measureHalfLoad(ctx context.Context, all []*contestant) map[string][]openSample {
	samples := map[string][]openSample{}
	at := slices.IndexFunc(all, func(c *contestant) bool { return c.name == create })
	if at < 0 {
		return samples
	}
	var unbounded vegeta.Rate
	most := b.attack(ctx, all[at], unbounded)
	half := vegeta.Rate{Freq: int(most.Throughput / 2), Per: time.Second}
	for range b.Rounds {
		for _, c := range all {
			if c.name == create || c.name == createFloor {
				m := b.attack(ctx, c, half)
				samples[c.name] = append(samples[c.name], openSample{m.Throughput, m.Latencies.P50, m.Latencies.P99, m.Latencies.Max, m.Success})
			}
		}
	}
	return samples
}

// attack has vegeta ask a contestant, and leaves out what it measured before it was warm.
func (b *bench) attack(ctx context.Context, c *contestant, rate vegeta.Rate) (metrics vegeta.Metrics) {
	b.renew(ctx)
	targeter := vegeta.NewStaticTargeter(vegeta.Target{
		Method: c.request.Method, URL: "http://" + c.server.Address + c.request.Path, Header: c.request.Header(), Body: []byte(c.request.Body),
	})
	const workers, most = 32, 128
	attacker := vegeta.NewAttacker(vegeta.Connections(most), vegeta.Workers(workers), vegeta.MaxWorkers(most), vegeta.Timeout(5*time.Second))
	defer attacker.Stop()
	ignore := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer ignore()
	warm := time.Now().Add(warmUp)
	for result := range attacker.Attack(targeter, rate, warmUp+2*b.Length(), c.name) {
		if result.Timestamp.After(warm) {
			metrics.Add(result)
		}
	}
	metrics.Close()
	const tolerable = 0.95 // as of load.Target
	if metrics.Success < tolerable {
		fixture.Check(fmt.Errorf("%s with vegeta: %v", c.name, metrics.Errors))
	}
	fixture.Check(ctx.Err())
	return metrics
}
