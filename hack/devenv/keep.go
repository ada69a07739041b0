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
	begun, early := time.Now(), 0
	c, err := p.launch(name, path, args)
	if err != nil {
		return nil, err
	}
	stopping, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stopping:
				stopped <- c.end()
				return
			case <-c.ended:
			}
			early++
			if time.Since(begun) > soon {
				early = 0
			}
			if early == tries {
				p.fail(c.failure())
				stopped <- nil
				return
			}
			fmt.Printf("==> %s ended (%v); starting it again\n", name, c.program.ProcessState)
			select {
			case <-stopping:
				stopped <- nil
				return
			case <-time.After(restartPause):
			}
			begun = time.Now()
			if c, err = p.launch(name, path, args); err != nil {
				p.fail(err)
				stopped <- nil
				return
			}
		}
	}()
	return sync.OnceValue(func() error {
		close(stopping)
		return <-stopped
	}), nil
}
