package main

import (
	"context"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// usage is what the dispatcher and Redis have used up.
type usage struct {
	at         time.Time
	dispatcher time.Duration // CPU
	redis      time.Duration // CPU
	mallocs    float64
	work       work
}

// usage is what has been used up until now.
func (s *stand) usage(ctx context.Context) (usage, error) {
	used := usage{at: time.Now()}
	var err error
	if used.dispatcher, err = process.CPU(s.dispatcher.PID()); err != nil {
		return used, err
	}
	if used.redis, err = process.CPU(s.redisPID); err != nil {
		return used, err
	}
	if used.work, err = s.redisWork(ctx); err != nil {
		return used, err
	}
	return used, nil
}

// since is what has been used up from then to u.
func (u usage) since(then usage) usage {
	return usage{
		dispatcher: u.dispatcher - then.dispatcher,
		redis:      u.redis - then.redis,
		mallocs:    u.mallocs - then.mallocs,
		work: work{
			scripts:      u.work.scripts - then.work.scripts,
			scriptMicros: u.work.scriptMicros - then.work.scriptMicros,
			commands:     u.work.commands - then.work.commands,
		},
	}
}

// mallocs is how many allocations the dispatcher has made. To ask costs it some, hence apart from usage.
func (s *stand) mallocs(ctx context.Context) (float64, error) {
	return process.Metric(ctx, s.metrics, "go_memstats_mallocs_total")
}
