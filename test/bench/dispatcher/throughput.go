package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
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
	// Repeated are deliveries of what had been delivered.
	Repeated int `json:"repeated"`
}

// delivering is what a process took to deliver.
type delivering struct {
	// PerSecond is events in a second, with all that takes part on the same processors.
	PerSecond float64 `json:"perSecond"`
	// CPU is µs of the process for one event, and PerCore the events in a second of its CPU time.
	CPU     float64 `json:"cpuMicrosPerEvent"`
	PerCore float64 `json:"perCPUSecond"`
	// Connections it has opened.
	Connections int `json:"connections"`
}

func deliveringOf(events int, took, cpu time.Duration, connections int) delivering {
	return delivering{
		PerSecond:   float64(events) / took.Seconds(),
		CPU:         micros(cpu) / float64(events),
		PerCore:     float64(events) / cpu.Seconds(),
		Connections: connections,
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// measureThroughput lets the dispatcher deliver a backlog, and then the floor the same bytes.
func (s *stand) measureThroughput(ctx context.Context) (throughput, error) {
	measured := throughput{Events: s.settings.events}
	if err := s.deliverBacklog(ctx, &measured); err != nil {
		return measured, err
	}
	delivered, err := s.receipts.events(ctx)
	if err != nil {
		return measured, err
	}
	measured.Repeated = len(delivered) - measured.Events
	if measured.Floor, err = s.deliverBare(ctx, delivered[:measured.Events]); err != nil {
		return measured, fmt.Errorf("the floor: %w", err)
	}
	return measured, nil
}

// deliverBacklog freezes the dispatcher until there is a backlog, so that no part of its start is measured.
func (s *stand) deliverBacklog(ctx context.Context, measured *throughput) error {
	mallocs, err := s.mallocs(ctx)
	if err != nil {
		return err
	}
	if err := s.freeze(); err != nil {
		return err
	}
	defer func() { _ = s.resume() }()
	sessions, err := s.create(ctx, measured.Events)
	if err != nil {
		return err
	}
	if err := s.cancel(ctx, sessions); err != nil {
		return err
	}
	if err := s.receipts.forget(ctx); err != nil {
		return err
	}
	before, err := s.usage(ctx)
	if err != nil {
		return err
	}
	if err := s.resume(); err != nil {
		return err
	}
	if err := s.receipts.await(ctx, measured.Events); err != nil {
		return err
	}
	took := time.Since(before.at)
	if err := s.awaitNothingDue(ctx); err != nil { // the last ones are still to be acknowledged
		return err
	}
	after, err := s.usage(ctx)
	if err != nil {
		return err
	}
	now, err := s.mallocs(ctx)
	if err != nil {
		return err
	}
	seen, err := s.receipts.seen(ctx)
	if err != nil {
		return err
	}
	used, events := after.since(before), float64(measured.Events)
	measured.Dispatcher = deliveringOf(measured.Events, took, used.dispatcher, seen.Dials)
	measured.Allocations = (now - mallocs) / events
	measured.RedisCPU = micros(used.redis) / events
	measured.ScriptMicros = used.work.scriptMicros / events
	measured.Scripts = used.work.scripts / events
	return nil
}

func (s *stand) freeze() error { return syscall.Kill(s.dispatcher.PID(), syscall.SIGSTOP) }
func (s *stand) resume() error { return syscall.Kill(s.dispatcher.PID(), syscall.SIGCONT) }

func (s *stand) awaitNothingDue(ctx context.Context) error {
	return process.Eventually(ctx, func() error {
		keys, err := s.client.Keys(ctx, "{b??}:due").Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			return fmt.Errorf("events are due in %d buckets", len(keys))
		}
		return nil
	})
}

// deliverBare has the floor post what the dispatcher has delivered.
func (s *stand) deliverBare(ctx context.Context, events []delivery) (delivering, error) {
	text, err := json.Marshal(events)
	if err != nil {
		return delivering{}, err
	}
	in, tell := io.Pipe()
	defer func() { _ = tell.Close() }()
	told := make(chan error, 1)
	go func() {
		_, err := tell.Write(append(text, '\n'))
		told <- err
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	floor, lines, _, err := s.startSelf(ctx, in, postWord)
	if err := errors.Join(err, <-told); err != nil {
		return delivering{}, err
	}
	if err := s.receipts.forget(ctx); err != nil {
		return delivering{}, err
	}
	return s.timeFloor(ctx, floor, tell, lines, len(events))
}

func (s *stand) timeFloor(ctx context.Context, floor *process.Process, tell io.Writer, lines *bufio.Reader, events int) (delivering, error) {
	before, err := process.CPU(floor.PID())
	if err != nil {
		return delivering{}, err
	}
	start := time.Now()
	if _, err := tell.Write([]byte("go\n")); err != nil {
		return delivering{}, err
	}
	if _, err := lines.ReadString('\n'); err != nil {
		return delivering{}, err
	}
	took := time.Since(start)
	after, err := process.CPU(floor.PID())
	if err != nil {
		return delivering{}, err
	}
	seen, err := s.receipts.seen(ctx)
	if err != nil {
		return delivering{}, err
	}
	if seen.Distinct != events {
		return delivering{}, fmt.Errorf("%d of %d events came", seen.Distinct, events)
	}
	return deliveringOf(events, took, after-before, seen.Dials), nil
}
