package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// work brings everything up, waits until stop is done or something fails, and takes everything down again. Being
// asked to stop is no error, not even half-way up.
func work(stop context.Context) error {
	// Nobody may be reading any more; that is no reason to die before the children have stopped.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	root, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	directory, release, err := claim(filepath.Join(root, ".dev"))
	if err != nil {
		return err
	}
	defer release()

	ctx, fail := context.WithCancelCause(stop)
	defer fail(nil)
	e := newEnvironment(root, directory, fail)
	err = e.up(ctx)
	if err == nil {
		<-ctx.Done()
	}
	if stop.Err() != nil {
		err = nil // whatever was under way then has failed by it
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, e.down())
}

// step says what is being done and, when that took a while, how long.
func step(what string, do func() error) error {
	fmt.Printf("==> %s\n", what)
	begin := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if took := time.Since(begin); took > time.Second {
		fmt.Printf("    took %.1f s\n", took.Seconds())
	}
	return nil
}
