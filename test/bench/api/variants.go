package api

import (
	"bytes"
	"context"
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

// The names of the variants in the JSON and the ratios.
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
	railRead     = "rail_read"
	hold         = "hold"
)

// variant is a server with a kind of request.
type variant struct {
	name    string
	server  *fixture.Process
	request load.Request
}

// variants are in the order of the table. The floors get the same bytes as the API, except for the path.
func (b *bench) variants() []*variant {
	refused := fixture.CreateSession(fixture.UnknownKeys(1)[0], charge)
	refused.Status = http.StatusUnauthorized
	plain, public, rails := fixture.CreateSession(b.key, charge), fixture.PublicSession(b.session), b.api.OnInternal()
	return []*variant{
		{bareFloor, b.floors, plain.To(barePath)},
		{createFloor, b.floors, plain.To(createPath)},
		{create, b.api, plain},
		{hold, rails, fixture.HoldSession(b.rail, b.session)},
		{naiveCreate, b.naive, plain},
		{createOnce, b.api, fixture.CreateSession(b.key, charge, "Idempotency-Key: "+oncePrefix+"000000000000")},
		{replay, b.api, replayRequest(b.key)},
		{readFloor, b.floors, public.To(readPath)},
		{publicRead, b.api, public},
		{railRead, rails, fixture.RailRead(b.rail, b.session)},
		{read, b.api, fixture.ReadSession(b.key, b.session)},
		{merchantMe, b.api, fixture.ReadProfile(b.key)},
		{unauthorized, b.api, refused},
	}
}

func replayRequest(key string) load.Request {
	return fixture.CreateSession(key, charge, "Idempotency-Key: replayed")
}

// oncePrefix is followed by a number that is different in each request.
const oncePrefix = "till-1-"

func (v *variant) target() load.Target {
	next := func(connection, n int, before []byte) []byte {
		if before == nil {
			before = v.request.Bytes()
		}
		if at := bytes.Index(before, []byte(oncePrefix)); at >= 0 {
			copy(before[at+len(oncePrefix):], fmt.Appendf(nil, "%04d%08d", connection, n))
		}
		return before
	}
	return load.Target{Name: v.name, Address: v.server.Address, Next: next, Status: v.request.Status}
}

// countCommands counts the commands to Redis for each request.
func (b *bench) countCommands(ctx context.Context, v *variant) float64 {
	const some = 20
	b.reset(ctx)
	fixture.Check(load.Times(ctx, v.target(), 2)) // loads scripts, and records the last use of the key
	sent := fixture.Commands(ctx, func() { fixture.Check(load.Times(ctx, v.target(), some)) }, b.redis)
	return float64(len(sent)) / some
}

// rawSample is the create script run by redis-benchmark: the limit of Redis itself.
type rawSample struct {
	PerSecond  float64 `json:"perSecond"`
	ScriptCost float64 `json:"redisMicrosPerScript"`
}

// measureRaw creates sessions with redis-benchmark, each with another id.
func (b *bench) measureRaw(ctx context.Context, pipeline int) rawSample {
	b.reset(ctx)
	const perSecond = 60_000           // roughly; redis-benchmark takes a number of calls, not of seconds
	const placeholder = "__rand_int__" // redis-benchmark replaces it by twelve digits
	_, port, _ := strings.Cut(b.redis.Addr(), ":")
	args := []string{
		"-p", port, "-c", "50", "-P", strconv.Itoa(pipeline), "-n", strconv.Itoa(int(perSecond * b.Seconds)), "-r", "1000000000", "--csv",
	}
	session := b.recorded.Create.Session
	for _, word := range b.recorded.Create.Words {
		args = append(args, strings.ReplaceAll(word, session, session[:len(session)-len(placeholder)]+placeholder))
	}
	var text []byte
	used := fixture.Use(ctx, func() {
		text = fixture.Must(exec.CommandContext(ctx, "redis-benchmark", args...).Output())
	}, b.api, b.redis).AllRedis()
	// Its CSV has the whole command as the first field and does not escape the quotes in it. Seven numbers follow, requests per
	// second first.
	const numbers = 7
	fields := strings.Split(strings.TrimSpace(string(text)), `","`)
	if len(fields) < 2*numbers {
		fixture.Check(fmt.Errorf("redis-benchmark printed %q", text))
	}
	return rawSample{fixture.Must(strconv.ParseFloat(fields[len(fields)-numbers], 64)), used.ScriptMicros / max(used.Scripts, 1)}
}

// openSample is a measurement at a constant rate (open loop), whether or not earlier requests have been answered.
type openSample struct {
	PerSecond float64       `json:"perSecond"`
	P50       time.Duration `json:"p50Nanoseconds"`
	P99       time.Duration `json:"p99Nanoseconds"`
	Max       time.Duration `json:"maxNanoseconds"`
	Success   float64       `json:"success"`
}

// measureHalfLoad measures the API and its floor in turn at half of the API's maximum rate. vegeta measures the maximum too, because
// it takes more CPU from the API than load does.
func (b *bench) measureHalfLoad(ctx context.Context, all []*variant) map[string][]openSample {
	samples := map[string][]openSample{}
	at := slices.IndexFunc(all, func(v *variant) bool { return v.name == create })
	if at < 0 {
		return samples
	}
	var unbounded vegeta.Rate
	most := b.attack(ctx, all[at], unbounded)
	half := vegeta.Rate{Freq: int(most.Throughput / 2), Per: time.Second}
	for range b.Rounds {
		for _, v := range all {
			if v.name == create || v.name == createFloor {
				m := b.attack(ctx, v, half)
				samples[v.name] = append(samples[v.name], openSample{m.Throughput, m.Latencies.P50, m.Latencies.P99, m.Latencies.Max, m.Success})
			}
		}
	}
	return samples
}

// attack sends requests with vegeta, and does not count the warm-up.
func (b *bench) attack(ctx context.Context, v *variant, rate vegeta.Rate) (metrics vegeta.Metrics) {
	b.reset(ctx)
	targeter := vegeta.NewStaticTargeter(vegeta.Target{
		Method: v.request.Method, URL: "http://" + v.server.Address + v.request.Path, Header: v.request.Header(), Body: []byte(v.request.Body),
	})
	const workers, most = 32, 128
	attacker := vegeta.NewAttacker(vegeta.Connections(most), vegeta.Workers(workers), vegeta.MaxWorkers(most), vegeta.Timeout(5*time.Second))
	defer attacker.Stop()
	ignore := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer ignore()
	warm := time.Now().Add(warmUp)
	for result := range attacker.Attack(targeter, rate, warmUp+2*b.Length(), v.name) {
		if result.Timestamp.After(warm) {
			metrics.Add(result)
		}
	}
	metrics.Close()
	const tolerable = 0.95 // as for load.Target
	if metrics.Success < tolerable {
		fixture.Check(fmt.Errorf("%s with vegeta: %v", v.name, metrics.Errors))
	}
	fixture.Check(ctx.Err())
	return metrics
}
