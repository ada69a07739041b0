package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// workerFlag marks the second process. It is not for people.
const workerFlag = "worker"

// foreground runs the worker in a session of its own and waits for it. The worker stops when its standard input
// ends: when a signal makes this process close it, and also when this process dies without a chance to do anything,
// as by SIGKILL. So nothing is left behind either way, and Ctrl-C, which a terminal sends to every process of the
// foreground, does not reach the children before their turn.
func foreground() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}

	self, err := os.Executable()
	if err != nil {
		return exitCode(fmt.Errorf("start the worker: %w", err))
	}
	worker := exec.Command(self, "--"+workerFlag) //nolint:noctx // it is stopped through its input
	worker.Stdout, worker.Stderr = os.Stdout, os.Stderr
	worker.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := worker.StdinPipe()
	if err != nil {
		return exitCode(fmt.Errorf("start the worker: %w", err))
	}
	if err := worker.Start(); err != nil {
		return exitCode(fmt.Errorf("start the worker: %w", err))
	}
	go func() {
		for range signals { // a second Ctrl-C changes nothing: the stop has its own deadlines
			_ = input.Close()
		}
	}()

	var exit *exec.ExitError
	switch err := worker.Wait(); {
	case errors.As(err, &exit):
		return max(1, exit.ExitCode())
	case err != nil:
		return exitCode(fmt.Errorf("wait for the worker: %w", err))
	default:
		return 0
	}
}

// untilEndOf is done when input ends.
func untilEndOf(ctx context.Context, input io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input)
	}()
	return ctx
}
