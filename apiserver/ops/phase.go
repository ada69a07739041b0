package ops

import "sync/atomic"

// Phase is where a replica stands in its life.
type Phase struct{ word atomic.Value }

// The phases, as /readyz names them. Only a serving replica is ready.
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

// Set begins a phase.
func (p *Phase) Set(word string) { p.word.Store(word) }

// Is reports whether it is the phase now.
func (p *Phase) Is(word string) bool { return p.word.Load() == word }
