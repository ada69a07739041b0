package main

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/load"
	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// sample is one measurement.
type sample struct {
	PerSecond   float64       `json:"perSecond"`
	P50         time.Duration `json:"p50Nanoseconds"`
	P99         time.Duration `json:"p99Nanoseconds"`
	CPUMicros   float64       `json:"cpuMicrosPerRequest"`      // of the server
	RedisCPU    float64       `json:"redisCPUMicrosPerRequest"` // of the process, the network included
	ScriptCost  float64       `json:"redisMicrosPerScript"`     // of Redis' own count; 0: no script was run
	Allocations float64       `json:"allocationsPerRequest"`
}

// gauge is what is read before and after a measurement.
type gauge struct {
	server, redis usage
	scripts       scriptCost
}

func (s *stand) gauge(ctx context.Context, server *server) (g gauge, err error) {
	if g.server, err = server.usage(ctx); err != nil {
		return g, err
	}
	if g.redis.cpu, err = process.CPU(s.redisPID); err != nil {
		return g, err
	}
	g.scripts, err = s.scripts(ctx)
	return g, err
}

// measure asks a contestant for a while.
func (s *stand) measure(ctx context.Context, c *contestant, connections int, settings settings) (sample, error) {
	if err := s.renew(ctx); err != nil {
		return sample{}, err
	}
	before, err := s.gauge(ctx, c.server)
	if err != nil {
		return sample{}, err
	}
	// What the warm-up costs is counted, and so are its requests: reading /proc takes time that would be missing in between.
	result, err := load.Run(ctx, c.target(), load.Schedule{Connections: connections, WarmUp: settings.warmUp, Duration: settings.length})
	if err != nil {
		return sample{}, fmt.Errorf("%s at %d connections: %w", c.name, connections, err)
	}
	after, err := s.gauge(ctx, c.server)
	if err != nil {
		return sample{}, err
	}
	answered := float64(result.Answered)
	measured := sample{
		PerSecond: result.PerSecond(), P50: result.P50, P99: result.P99,
		CPUMicros:   microseconds(after.server.cpu-before.server.cpu) / answered,
		RedisCPU:    microseconds(after.redis.cpu-before.redis.cpu) / answered,
		Allocations: (after.server.mallocs - before.server.mallocs) / answered,
	}
	if calls := after.scripts.calls - before.scripts.calls; calls > 0 {
		measured.ScriptCost = (after.scripts.micros - before.scripts.micros) / float64(calls)
	}
	return measured, nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
