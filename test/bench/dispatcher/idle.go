package main

import (
	"context"
	"time"
)

// idle is what a dispatcher costs that has nothing to do, though there are sessions that wait for their end.
type idle struct {
	// CPU and RedisCPU are percent of one processor.
	CPU      float64 `json:"cpuPercent"`
	RedisCPU float64 `json:"redisCPUPercent"`
	// Scripts are what Redis was asked to run in a second, and Commands all it has done, those in scripts included.
	Scripts  float64 `json:"scriptsPerSecond"`
	Commands float64 `json:"commandsPerSecond"`
}

func (s *stand) measureIdle(ctx context.Context) (idle, error) {
	if _, err := s.create(ctx, 10*merchants); err != nil {
		return idle{}, err
	}
	if err := s.awaitNothingDue(ctx); err != nil {
		return idle{}, err
	}
	before, err := s.usage(ctx)
	if err != nil {
		return idle{}, err
	}
	timer := time.NewTimer(s.settings.rest())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return idle{}, ctx.Err()
	case <-timer.C:
	}
	after, err := s.usage(ctx)
	if err != nil {
		return idle{}, err
	}
	took, used := after.at.Sub(before.at).Seconds(), after.since(before)
	return idle{
		CPU:      100 * used.dispatcher.Seconds() / took,
		RedisCPU: 100 * used.redis.Seconds() / took,
		Scripts:  used.work.scripts / took,
		Commands: used.work.commands / took,
	}, nil
}
