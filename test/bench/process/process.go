// Package process runs the programs that are measured, and reads what they have used up.
package process

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// Patience is for what takes milliseconds on an idle machine.
const Patience = 60 * time.Second

// Process is a program that runs.
type Process struct{ command *exec.Cmd }

// Start runs a program that reads in, if there is one, and writes its log to log. Returns what it writes besides.
// It is asked to end when ctx does, or by Stop.
func Start(ctx context.Context, log io.Writer, in io.Reader, program string, args ...string) (*Process, io.Reader, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Stdin, command.Stderr = in, log
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = Patience
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", program, err)
	}
	return &Process{command}, out, nil
}

// Stop asks the program to end, and waits until it has.
func (p *Process) Stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	_ = p.command.Wait() // it was told to end
}

// PID is the number the kernel knows it by.
func (p *Process) PID() int { return p.command.Process.Pid }

// Eventually tries until do succeeds. The error is that of the last try, after Patience or when ctx ends.
func Eventually(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}
