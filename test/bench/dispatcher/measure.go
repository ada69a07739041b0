package dispatcher

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

// throughput is what it took to deliver a backlog, to the dispatcher and to the floor.
type throughput struct {
	Events int `json:"events"`

	Dispatcher delivering `json:"dispatcher"`
	Floor      delivering `json:"floor"`

	// Of the dispatcher, for each event.
	Allocations  float64 `json:"allocationsPerEvent"`
	RedisCPU     float64 `json:"redisCPUMicrosPerEvent"`
	ScriptMicros float64 `json:"scriptMicrosPerEvent"`
	Scripts      float64 `json:"scriptsPerEvent"`
	Repeated     int     `json:"repeated"` // deliveries of what had been delivered
}

// delivering is what a process took to deliver.
type delivering struct {
	PerSecond   float64 `json:"perSecond"` // by the clock, with all that takes part on the same processors
	CPU         float64 `json:"cpuMicrosPerEvent"`
	PerCore     float64 `json:"perCPUSecond"` // events in a second of its CPU time
	Connections int     `json:"connections"`  // that it opened
}

func deliveringOf(events int, took, cpu time.Duration, connections int) delivering {
	n := float64(events)
	return delivering{n / took.Seconds(), fixture.Micros(cpu) / n, n / cpu.Seconds(), connections}
}

// measureThroughput lets the dispatcher deliver a backlog, and then the floor the same bytes.
func (b *bench) measureThroughput(ctx context.Context) throughput {
	t := b.deliverBacklog(ctx)
	delivered := b.receiver.deliveries()
	t.Repeated = len(delivered) - t.Events
	t.Floor = b.measureFloor(ctx, delivered[:t.Events])
	return t
}

// deliverBacklog freezes the dispatcher until there is a backlog, so that no part of its start is measured.
func (b *bench) deliverBacklog(ctx context.Context) throughput {
	mallocs := b.dispatcher.Mallocs(ctx)
	b.dispatcher.Freeze()
	b.cancelAll(ctx, b.create(ctx, b.events))
	b.receiver.reset()
	var took time.Duration
	used := fixture.Use(ctx, func() {
		started := time.Now()
		b.dispatcher.Resume()
		b.receiver.await(ctx, b.events)
		took = time.Since(started)
		b.awaitNothingDue(ctx) // the last ones are still to be acknowledged
	}, b.dispatcher, b.redis)
	redis, events := used.AllRedis(), float64(b.events)
	_, connections := b.receiver.counts()
	return throughput{
		Events: b.events, Dispatcher: deliveringOf(b.events, took, used.CPU, connections),
		Allocations: (b.dispatcher.Mallocs(ctx) - mallocs) / events, RedisCPU: fixture.Micros(redis.CPU) / events,
		ScriptMicros: redis.ScriptMicros / events, Scripts: redis.Scripts / events,
	}
}

func (b *bench) awaitNothingDue(ctx context.Context) {
	fixture.Check(fixture.Eventually(ctx, func() error {
		keys, err := b.redis.Keys(ctx, "{b??}:due").Result()
		if err == nil && len(keys) > 0 {
			err = fmt.Errorf("events are due in %d buckets", len(keys))
		}
		return err
	}))
}

// measureFloor has the floor post what the dispatcher has delivered.
func (b *bench) measureFloor(ctx context.Context, events []delivery) delivering {
	text := append(fixture.Must(json.Marshal(events)), '\n')
	in, write := io.Pipe()
	go func() { _, _ = write.Write(text) }() // an error of it is one of the floor, too
	floor, _ := b.StartSelf(ctx, in, postCommand)
	defer func() { _ = write.Close(); floor.Stop() }() // in this order: Stop waits until its input has ended
	b.receiver.reset()
	cpu, started := floor.CPU(), time.Now()
	fixture.Must(write.Write([]byte("go\n")))
	fixture.Must(floor.Out.ReadString('\n'))
	took := time.Since(started)
	cpu = floor.CPU() - cpu
	arrived, connections := b.receiver.counts()
	if arrived != len(events) {
		fixture.Check(fmt.Errorf("of the floor's %d events %d arrived", len(events), arrived))
	}
	return deliveringOf(len(events), took, cpu, connections)
}

// lag is how long events wait for their first attempt, at a constant rate.
type lag struct {
	Events int           `json:"events"`
	P50    time.Duration `json:"p50"`
	P99    time.Duration `json:"p99"`
	Max    time.Duration `json:"max"`
	// Late is by how much the load itself was behind its schedule, at most: the waits are no more exact than that.
	Late time.Duration `json:"late"`
	// CPU of the dispatcher and of Redis, µs for each event; at this rate most of it is polling. That of Redis includes
	// the making of the events.
	CPU      float64 `json:"cpuMicrosPerEvent"`
	RedisCPU float64 `json:"redisCPUMicrosPerEvent"`
}

// measureLag makes events at a constant rate, whether or not earlier ones have arrived. The receiver takes the time from an event's
// timestamp to its arrival; all of them read the same clock.
func (b *bench) measureLag(ctx context.Context) lag {
	count := int(constantRate * b.Seconds)
	sessions := b.create(ctx, count)
	b.receiver.reset()
	var late time.Duration
	used := fixture.Use(ctx, func() {
		late = b.cancelSteadily(ctx, sessions)
		b.receiver.await(ctx, count)
	}, b.dispatcher, b.redis)
	events := b.receiver.deliveries()
	slices.SortFunc(events, func(a, b delivery) int { return cmp.Compare(a.Lag, b.Lag) })
	at := func(share float64) time.Duration { return events[int(share*float64(len(events)-1))].Lag }
	return lag{
		Events: count, P50: at(0.5), P99: at(0.99), Max: at(1), Late: late,
		CPU: fixture.Micros(used.CPU) / float64(count), RedisCPU: fixture.Micros(used.AllRedis().CPU) / float64(count),
	}
}

// cancelSteadily ends a session each time one is due, and returns by how much it was late at most.
func (b *bench) cancelSteadily(ctx context.Context, sessions []charged) (late time.Duration) {
	const interval = time.Second / constantRate
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	underWay, working := errgroup.WithContext(ctx)
	start := time.Now()
	for begun := 0; begun < len(sessions) && working.Err() == nil; {
		select {
		case <-working.Done():
		case <-ticker.C:
		}
		behind := time.Since(start) - time.Duration(begun)*interval
		late = max(late, behind)
		for ; behind >= 0 && begun < len(sessions); behind -= interval { // a tick that was lost is made up for
			one := sessions[begun]
			begun++
			underWay.Go(func() error { return b.cancel(working, one) })
		}
	}
	fixture.Check(underWay.Wait())
	fixture.Check(ctx.Err())
	return late
}

// idle is what a dispatcher costs that has nothing to do, though there are sessions that wait for their end.
type idle struct {
	CPU      float64 `json:"cpuPercent"` // of one processor
	RedisCPU float64 `json:"redisCPUPercent"`
	Scripts  float64 `json:"scriptsPerSecond"`
	Commands float64 `json:"commandsPerSecond"` // those in scripts too
}

func (b *bench) measureIdle(ctx context.Context, length time.Duration) idle {
	b.create(ctx, 10*merchants)
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
