package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lag is how long events wait for their first attempt, at a constant rate.
type lag struct {
	Events int           `json:"events"`
	P50    time.Duration `json:"p50"`
	P99    time.Duration `json:"p99"`
	Max    time.Duration `json:"max"`
	// Late is by how much the load itself was behind its schedule, at most: what it says of waits is no truer than that.
	Late time.Duration `json:"late"`
	// CPU of the dispatcher and of Redis, µs for each event; at this rate most of it is the looking. That of Redis includes the
	// making of the events.
	CPU      float64 `json:"cpuMicrosPerEvent"`
	RedisCPU float64 `json:"redisCPUMicrosPerEvent"`
}

// measureLag makes events at a constant rate, whether or not earlier ones have arrived. The receiver takes the time from what an event
// says to its arrival; all of them read the same clock.
func (s *stand) measureLag(ctx context.Context) (lag, error) {
	count := int(constantRate * s.settings.length.Seconds())
	sessions, err := s.create(ctx, count)
	if err != nil {
		return lag{}, err
	}
	if err := s.receipts.forget(ctx); err != nil {
		return lag{}, err
	}
	before, err := s.usage(ctx)
	if err != nil {
		return lag{}, err
	}
	late, err := s.cancelSteadily(ctx, sessions)
	if err != nil {
		return lag{}, err
	}
	if err := s.receipts.await(ctx, count); err != nil {
		return lag{}, err
	}
	after, err := s.usage(ctx)
	if err != nil {
		return lag{}, err
	}
	events, err := s.receipts.events(ctx)
	if err != nil {
		return lag{}, err
	}
	slices.SortFunc(events, func(a, b delivery) int { return int(a.Lag - b.Lag) })
	used := after.since(before)
	at := func(share float64) time.Duration { return events[int(share*float64(len(events)-1))].Lag }
	return lag{
		Events: count, P50: at(0.5), P99: at(0.99), Max: at(1), Late: late,
		CPU: micros(used.dispatcher) / float64(count), RedisCPU: micros(used.redis) / float64(count),
	}, nil
}

// cancelSteadily ends a session each time one is due, and returns by how much it was late at most.
func (s *stand) cancelSteadily(ctx context.Context, sessions []charged) (late time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	const interval = time.Second / constantRate
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var underWay sync.WaitGroup
	start := time.Now()
	for begun := 0; begun < len(sessions) && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
		behind := time.Since(start) - time.Duration(begun)*interval
		late = max(late, behind)
		for ; behind >= 0 && begun < len(sessions); behind -= interval { // a tick that was lost is made up for
			one := sessions[begun]
			begun++
			underWay.Go(func() {
				if err := s.cancelOne(ctx, one); err != nil {
					cancel(err)
				}
			})
		}
	}
	underWay.Wait()
	return late, context.Cause(ctx)
}
