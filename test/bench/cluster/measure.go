package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/load"
	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// The kinds of requests. Readers of the JSON know them by these names.
const (
	create     = "create_idempotent"
	replay     = "replay"
	read       = "read"
	publicRead = "public"
)

var kinds = [...]string{create, replay, read, publicRead} //nolint:gochecknoglobals // a constant

// connections are how many clients ask at once.
const connections = 64

// sample is one measurement.
type sample struct {
	PerSecond float64       `json:"perSecond"`
	P50       time.Duration `json:"p50Nanoseconds"`
	P99       time.Duration `json:"p99Nanoseconds"`
	CPUMicros float64       `json:"cpuMicrosPerRequest"`      // of the API
	RedisCPU  float64       `json:"redisCPUMicrosPerRequest"` // of all servers together
	Scripts   []int64       `json:"scriptsOfEachServer"`
	NodeCPU   []float64     `json:"cpuMicrosOfEachServer"`
	Redirects int64         `json:"redirects"` // MOVED, ASK and TRYAGAIN that the servers gave
}

// gauge is what is read before and after a measurement.
type gauge struct {
	api       time.Duration
	redis     []time.Duration
	scripts   []int64
	redirects int64
}

func (s *side) gauge(ctx context.Context) (g gauge, err error) {
	if g.api, err = process.CPU(s.replica.PID()); err != nil {
		return g, err
	}
	for _, n := range s.nodes {
		spent, err := process.CPU(n.pid)
		if err != nil {
			return g, err
		}
		scripts, err := n.count(ctx, "commandstats", "calls", "cmdstat_evalsha", "cmdstat_eval")
		if err != nil {
			return g, err
		}
		redirects, err := n.count(ctx, "errorstats", "count", "errorstat_MOVED", "errorstat_ASK", "errorstat_TRYAGAIN")
		if err != nil {
			return g, err
		}
		g.redis, g.scripts, g.redirects = append(g.redis, spent), append(g.scripts, scripts), g.redirects+redirects
	}
	return g, nil
}

// measure asks one kind of request of random merchants for a while.
func (s *side) measure(ctx context.Context, target load.Target, settings settings) (sample, error) {
	before, err := s.gauge(ctx)
	if err != nil {
		return sample{}, err
	}
	result, err := load.Run(ctx, target, load.Schedule{Connections: connections, WarmUp: settings.warmUp, Duration: settings.length})
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", s.name, err)
	}
	after, err := s.gauge(ctx)
	if err != nil {
		return sample{}, err
	}
	answered := float64(result.Answered)
	measured := sample{
		PerSecond: result.PerSecond(), P50: result.P50, P99: result.P99,
		CPUMicros: micros(after.api-before.api) / answered, Redirects: after.redirects - before.redirects,
	}
	for i := range s.nodes {
		spent := micros(after.redis[i] - before.redis[i])
		measured.RedisCPU += spent / answered
		measured.NodeCPU = append(measured.NodeCPU, spent)
		measured.Scripts = append(measured.Scripts, after.scripts[i]-before.scripts[i])
	}
	return measured, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// onceMark is where each create has a number of its own.
const onceMark = "00000000000000000000"

// target asks one kind of random merchants. The first round's charges are what is replayed and read.
func (s *side) target(kind string, round int, first verdict) load.Target {
	requests := make([][]byte, len(first.orders))
	for i, o := range first.orders {
		requests[i] = request(kind, o, first.sessions[i])
	}
	dice := make([]*rand.Rand, connections)
	for i := range dice {
		dice[i] = rand.New(rand.NewPCG(uint64(round), uint64(i))) // the same merchants in every run
	}
	status := http.StatusOK
	if kind == create || kind == replay {
		status = http.StatusCreated
	}
	return load.Target{Address: s.address, Status: status, Request: func(connection, n int, before []byte) []byte {
		before = append(before[:0], requests[dice[connection].IntN(len(requests))]...)
		if at := bytes.Index(before, []byte(onceMark)); at >= 0 {
			copy(before[at:], fmt.Appendf(nil, "%04d%06d%010d", round, connection, n))
		}
		return before
	}}
}

// request is one on the wire.
func request(kind string, o order, session string) []byte {
	key := "Authorization: Bearer " + o.merchant.key + "\r\n"
	switch kind {
	case read:
		return fmt.Appendf(nil, "GET /api/v1/sessions/%s HTTP/1.1\r\nHost: bench\r\n%s\r\n", session, key)
	case publicRead:
		return fmt.Appendf(nil, "GET /api/v1/public/sessions/%s HTTP/1.1\r\nHost: bench\r\n\r\n", session)
	default:
		once := o.once
		if kind == create {
			once = onceMark
		}
		return fmt.Appendf(nil, "POST /api/v1/sessions HTTP/1.1\r\nHost: bench\r\n%sContent-Type: application/json\r\nIdempotency-Key: %s\r\n"+
			"Content-Length: %d\r\n\r\n%s", key, once, len(o.body()), o.body())
	}
}
