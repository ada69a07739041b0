package dispatcher

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

// throughput is the cost of delivering a backlog, by the dispatcher and by the floor.
type throughput struct {
	Events int `json:"events"`

	Dispatcher delivering `json:"dispatcher"`
	Floor      delivering `json:"floor"`

	// The dispatcher's, for each event.
	Allocations  float64 `json:"allocationsPerEvent"`
	RedisCPU     float64 `json:"redisCPUMicrosPerEvent"`
	ScriptMicros float64 `json:"scriptMicrosPerEvent"`
	Scripts      float64 `json:"scriptsPerEvent"`
	Repeated     int     `json:"repeated"` // duplicate deliveries
}

// delivering is the cost of delivering for a process.
type delivering struct {
	PerSecond   float64 `json:"perSecond"` // by the clock; all processes share the CPU
	CPU         float64 `json:"cpuMicrosPerEvent"`
	PerCore     float64 `json:"perCPUSecond"` // events per second of its CPU time
	Connections int     `json:"connections"`  // that it opened
}

func newDelivering(events int, took, cpu time.Duration, connections int) delivering {
	n := float64(events)
	return delivering{n / took.Seconds(), fixture.Micros(cpu) / n, n / cpu.Seconds(), connections}
}

// measureThroughput has the dispatcher deliver a backlog, and then the floor the same bytes.
func (b *bench) measureThroughput(ctx context.Context, merchants []fixture.Merchant) throughput {
	t := b.deliverBacklog(ctx, merchants)
	delivered := b.receiver.deliveries()
	t.Repeated = len(delivered) - t.Events
	t.Floor = b.measureFloor(ctx, delivered[:t.Events])
	return t
}

// deliverBacklog freezes the dispatcher while it creates the backlog, so that the dispatcher's start is not measured.
func (b *bench) deliverBacklog(ctx context.Context, merchants []fixture.Merchant) throughput {
	mallocs := b.dispatcher.Mallocs(ctx)
	b.dispatcher.Freeze()
	b.cancelAll(ctx, b.create(ctx, merchants, b.events))
	b.receiver.reset()
	var took time.Duration
	used := fixture.Use(ctx, func() {
		started := time.Now()
		b.dispatcher.Resume()
		b.receiver.await(ctx, b.events)
		took = time.Since(started)
		b.awaitNothingDue(ctx) // the last ones are acknowledged
	}, b.dispatcher, b.redis)
	redis, events := used.AllRedis(), float64(b.events)
	_, connections := b.receiver.counts()
	return throughput{
		Events: b.events, Dispatcher: newDelivering(b.events, took, used.CPU, connections),
		Allocations: (b.dispatcher.Mallocs(ctx) - mallocs) / events, RedisCPU: fixture.Micros(redis.CPU) / events,
		ScriptMicros: redis.ScriptMicros / events, Scripts: redis.Scripts / events,
	}
}

func (b *bench) awaitNothingDue(ctx context.Context) {
	fixture.Check(fixture.Eventually(ctx, func() error {
		keys, err := b.redis.Keys(ctx, "{b*}:due").Result()
		if err == nil && len(keys) > 0 {
			err = fmt.Errorf("events are due in %d buckets", len(keys))
		}
		return err
	}))
}

// measureFloor has the floor post the same deliveries.
func (b *bench) measureFloor(ctx context.Context, events []delivery) delivering {
	b.receiver.reset()
	floor, line := b.StartSelf(ctx, bytes.NewReader(fixture.Must(json.Marshal(events))), postCommand)
	floor.Stop()
	var result floorResult
	fixture.Check(json.Unmarshal([]byte(line), &result))
	arrived, connections := b.receiver.counts()
	if arrived != len(events) {
		fixture.Check(fmt.Errorf("%d of the floor's %d events have arrived", arrived, len(events)))
	}
	return newDelivering(result.Events, result.Took, result.CPU, connections)
}

// lag is the delay until the first attempt, at a constant rate.
type lag struct {
	Events int           `json:"events"`
	P50    time.Duration `json:"p50"`
	P99    time.Duration `json:"p99"`
	Max    time.Duration `json:"max"`
	// Late is how far the load was behind its schedule at most. The delays are not more exact than that.
	Late time.Duration `json:"late"`
	// CPU of the dispatcher and of Redis. At this rate most of it is polling. That of Redis includes creating the events.
	CPU      float64 `json:"cpuMicrosPerEvent"`
	RedisCPU float64 `json:"redisCPUMicrosPerEvent"`
}

// measureLag creates events at a constant rate, whether or not earlier ones have arrived. The receiver measures the time from an
// event's timestamp to its arrival, by the same clock.
func (b *bench) measureLag(ctx context.Context) lag {
	count := int(constantRate * b.Seconds)
	sessions := b.create(ctx, b.plain, count)
	b.receiver.reset()
	var late time.Duration
	used := fixture.Use(ctx, func() {
		late = b.cancelSteadily(ctx, sessions)
		b.receiver.await(ctx, count)
	}, b.dispatcher, b.redis)
	measured := newLag(b.receiver.deliveries())
	measured.Late = late
	measured.CPU, measured.RedisCPU = fixture.Micros(used.CPU)/float64(count), fixture.Micros(used.AllRedis().CPU)/float64(count)
	return measured
}

func newLag(events []delivery) lag {
	slices.SortFunc(events, func(a, b delivery) int { return cmp.Compare(a.Lag, b.Lag) })
	at := func(share float64) time.Duration { return events[int(share*float64(len(events)-1))].Lag }
	return lag{Events: len(events), P50: at(0.5), P99: at(0.99), Max: at(1)}
}

// isolation is the lag of endpoints that answer at once, while others hang or are slow, or none is.
type isolation struct {
	lag

	Repeated int `json:"repeated"` // duplicate deliveries
}

// measureIsolation begins with an empty Redis and a new dispatcher: no breaker is open, and no retry is due. The first endpoints answer
// only after this time, from the first event on, and each has a backlog of events. It is longer than the timeout of an attempt.
func (b *bench) measureIsolation(ctx context.Context, slow int, after time.Duration, backlog int) isolation {
	b.dispatcher.Stop()
	fixture.Check(b.redis.FlushAll(ctx).Err())
	b.startDispatcher(ctx)
	count := int(constantRate * isolationTime.Seconds())
	sessions, waiting := b.create(ctx, b.plain, count), b.create(ctx, b.plain[:slow], slow*backlog)
	good := count - count/len(b.plain)*slow
	b.receiver.reset()
	release := b.receiver.slowDown(b.hosts[:slow], after)
	b.cancelAll(ctx, waiting)
	late := b.cancelSteadily(ctx, sessions)
	b.receiver.await(ctx, good)
	measured := isolation{lag: newLag(b.receiver.deliveries())}
	measured.Late, measured.Repeated = late, measured.Events-good
	release()
	return measured
}

// cancelSteadily cancels a session at each interval, and returns how far it was behind that schedule at most.
func (b *bench) cancelSteadily(ctx context.Context, sessions []pending) (late time.Duration) {
	const interval = time.Second / constantRate
	limiter := rate.NewLimiter(constantRate, len(sessions)) // a large burst, so that lost time is made up for
	limiter.AllowN(time.Now(), len(sessions))
	group, working := errgroup.WithContext(ctx)
	start := time.Now()
	for i, one := range sessions {
		if limiter.Wait(working) != nil {
			break // group.Wait or ctx.Err says why
		}
		late = max(late, time.Since(start)-time.Duration(i+1)*interval)
		group.Go(func() error { return b.cancel(working, one) })
	}
	fixture.Check(group.Wait())
	fixture.Check(ctx.Err())
	return late
}

// idle is the cost of a dispatcher without events, but with pending sessions.
type idle struct {
	CPU      float64 `json:"cpuPercent"` // of one processor
	RedisCPU float64 `json:"redisCPUPercent"`
	Scripts  float64 `json:"scriptsPerSecond"`
	Commands float64 `json:"commandsPerSecond"` // in scripts too
}

func (b *bench) measureIdle(ctx context.Context, length time.Duration) idle {
	b.create(ctx, b.plain, 10*merchants)
	b.awaitNothingDue(ctx)
	used := fixture.Use(ctx, func() {
		select {
		case <-ctx.Done():
		case <-time.After(length):
		}
	}, b.dispatcher, b.redis)
	fixture.Check(ctx.Err())
	redis, seconds := used.AllRedis(), used.Took.Seconds()
	return idle{
		CPU: 100 * used.CPU.Seconds() / seconds, RedisCPU: 100 * redis.CPU.Seconds() / seconds,
		Scripts: redis.Scripts / seconds, Commands: redis.Commands / seconds,
	}
}
