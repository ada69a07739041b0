package main

import (
	"fmt"
	"sync"
	"time"
)

// A role that ends is started again after a pause, unless it ended soon after its start several times in a row:
// then it will do so for ever.
const (
	soon         = 5 * time.Second
	tries        = 3
	restartPause = time.Second
)

// keep runs a role and starts it again when it ends, as a cluster does, so that one can be killed to see what
// happens then.
func (p *programs) keep(name, path string, args ...string) (stop func() error, err error) {
	launch := func() (*child, error) { return p.launch(name, path, args) }
	first, err := launch()
	if err != nil {
		return nil, err
	}
	stopping, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- p.watchOver(first, launch, stopping) }()
	return sync.OnceValue(func() error {
		close(stopping)
		return <-stopped
	}), nil
}

// watchOver returns when the role has stopped, because it was asked to or because it always ends.
func (p *programs) watchOver(role *child, launch func() (*child, error), stopping <-chan struct{}) error {
	for early := 0; ; {
		begun := time.Now()
		select {
		case <-stopping:
			return role.end()
		case <-role.ended:
		}
		early++
		if time.Since(begun) > soon {
			early = 0
		}
		if early == tries {
			p.fail(role.failure())
			return nil
		}
		fmt.Printf("==> %s ended (%v); starting it again\n", role.name, role.program.ProcessState)
		select {
		case <-stopping:
			return nil
		case <-time.After(restartPause):
		}
		next, err := launch()
		if err != nil {
			p.fail(err)
			return nil
		}
		role = next
	}
}
