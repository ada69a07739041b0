package ops

import "sync/atomic"

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
