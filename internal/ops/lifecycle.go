package ops

import (
	"context"
	"sync"
	"sync/atomic"
)

// Phase is the state of a replica, as /readyz reports it.
type Phase struct{ name atomic.Value }

// The phases. Only a serving replica is ready.
const (
	Syncing  = "syncing"
	Serving  = "serving"
	Draining = "draining"
)

// NewPhase returns the first phase, Syncing.
func NewPhase() *Phase {
	p := &Phase{}
	p.Set(Syncing)
	return p
}

// Set starts a phase.
func (p *Phase) Set(name string) { p.name.Store(name) }

// Is reports whether this is the current phase.
func (p *Phase) Is(name string) bool { return p.name.Load() == name }

// Background runs the functions until stop is called. They outlive ctx, because a role still works while it drains.
func Background(ctx context.Context, functions ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, function := range functions {
		running.Go(func() { function(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// Await returns the result of wait, or the error of a listener that fails before. wait must end with its own context.
func Await(failed <-chan error, wait func() error) error {
	done := make(chan error, 1)
	go func() { done <- wait() }()
	select {
	case err := <-done:
		return err
	case err := <-failed:
		return err
	}
}
