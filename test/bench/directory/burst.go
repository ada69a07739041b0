package main

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/load"
	"github.com/merchant-operator/merchant-operator/test/bench/process"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
)

const (
	burstConnections = 4
	// burstLength is short, so that a burst of some tens of milliseconds is more than a hundredth of it, and shows in the p99.
	burstLength = 500 * time.Millisecond
)

// measureBursts asks a replica whose watch was held up while keys were rotated, and lets all changes go at once: the worst burst there can be, and
// nobody who writes them shares the processors. In turn with that it asks while nothing happens. The keys it asks with do not change.
func (s *stand) measureBursts(ctx context.Context, results *results) error {
	_ = s.knowsFew.end() // leave the processors to the other
	_ = s.knowsMany.end()
	proxy, err := kubeproxy.Start(s.config)
	if err != nil {
		return err
	}
	s.onStop(func() error { proxy.Close(); return nil })
	kubeconfig, err := proxy.Kubeconfig(s.directory, "proxied")
	if err != nil {
		return err
	}
	r, err := s.startReplica(ctx, kubeconfig, s.many)
	if err != nil {
		return err
	}
	changing, steady := s.many.keys[:s.settings.changes], s.many.keys[s.settings.changes:]
	schedule := load.Schedule{Connections: burstConnections, WarmUp: burstLength, Duration: burstLength}
	for i := range s.settings.bursts {
		calm, err := r.measure(ctx, steady, accepted, schedule)
		if err != nil {
			return err
		}
		results.Calm = append(results.Calm, calm)
		proxy.FreezeWatches()
		if err := s.rotate(ctx, s.many, len(changing), int64(i)+2); err != nil {
			return fmt.Errorf("rotate: %w", err)
		}
		release := time.AfterFunc(burstLength, proxy.ThawWatches)
		burst, err := r.measure(ctx, steady, accepted, schedule)
		release.Stop()
		proxy.ThawWatches()
		if err != nil {
			return err
		}
		results.Burst = append(results.Burst, burst)
		if err := process.Eventually(ctx, func() error { return allAccepted(ctx, r, changing) }); err != nil {
			return fmt.Errorf("the replica did not take the changes in: %w", err)
		}
	}
	return r.end()
}

// allAccepted asks with each key once.
func allAccepted(ctx context.Context, r *replica, keys []string) error {
	target := r.asks(keys, accepted)
	target.Request = func(_, n int, _ []byte) []byte { return r.asks(keys[n:n+1], accepted).Request(0, 0, nil) }
	return load.Times(ctx, target, len(keys))
}
