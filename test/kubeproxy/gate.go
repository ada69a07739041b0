package kubeproxy

import (
	"context"
	"io"
	"sync"
)

// gate is something that can be waited for to be open.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpenLocked() {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOpenLocked() {
		close(g.opened)
	}
}

func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isOpenLocked()
}

func (g *gate) isOpenLocked() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// wait returns when the gate is open, or with the context's error.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gatedBody passes what it reads only while the gate is open.
type gatedBody struct {
	io.ReadCloser

	gate *gate
	ctx  context.Context //nolint:containedctx // a Reader's Read takes none
}

func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if waitErr := b.gate.wait(b.ctx); waitErr != nil {
		return 0, waitErr
	}
	return n, err
}
