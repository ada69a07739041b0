package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// patienceToStop is how long a program may take to stop before it is killed.
const patienceToStop = 15 * time.Second

// programs starts child processes. If one ends unexpectedly, the environment fails; but see keep.
type programs struct {
	logs string
	fail context.CancelCauseFunc
	// restarted says what people have to know of a kept program that was started again, by its name; without an entry nothing.
	restarted map[string]string
}

func (p *programs) logPath(name string) string { return filepath.Join(p.logs, name+".log") }

// child is a process that was started.
type child struct {
	name, log string
	program   *exec.Cmd
	ended     chan struct{}
}

func (p *programs) launch(name, path string, args []string) (*child, error) {
	c := &child{name: name, log: p.logPath(name), ended: make(chan struct{})}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a log file: %w", err)
	}
	defer func() { _ = log.Close() }()      // the child has its own
	c.program = exec.Command(path, args...) //nolint:noctx // end stops it
	c.program.Stdout, c.program.Stderr = log, log
	c.program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.program.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = c.program.Wait()
		close(c.ended)
	}()
	return c, nil
}

func ended(name, how, log string) error {
	return fmt.Errorf("%s ended unexpectedly%s; the end of %s:\n%s", name, how, log, tail(log))
}

func (c *child) failure() error {
	return ended(c.name, fmt.Sprintf(" (%v)", c.program.ProcessState), c.log)
}

// logUntilEnd returns the output for a process that a library starts, and fails the environment when that process ends: only then
// nothing holds this pipe open any more. The caller closes the output once the process has started.
func (p *programs) logUntilEnd(name string) (output *os.File, err error) {
	log, err := os.Create(p.logPath(name))
	if err != nil {
		return nil, fmt.Errorf("make a log file: %w", err)
	}
	reader, output, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe for the log of %s: %w", name, err), log.Close())
	}
	go func() {
		_, err := io.Copy(log, reader)
		_ = errors.Join(reader.Close(), log.Close())
		p.fail(errors.Join(ended(name, "", log.Name()), err))
	}()
	return output, nil
}

// end asks the process to stop, and kills it after patienceToStop.
func (c *child) end() error {
	process := c.program.Process
	if err := process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	select {
	case <-c.ended:
		return nil
	case <-time.After(patienceToStop):
		err := process.Kill()
		<-c.ended
		return errors.Join(fmt.Errorf("%s did not stop within %s and was killed", c.name, patienceToStop), err)
	}
}

// tail returns the last lines of a log.
func tail(path string) string {
	const lines = 15
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// A kept program that ends is started again after a pause. If it ended soon after its start several times in a row, the environment fails.
const (
	soon         = 5 * time.Second
	tries        = 3
	restartPause = time.Second
)

// start runs a program that logs to NAME.log, and returns the function that stops it.
func (p *programs) start(name, path string, args ...string) (stop func() error, err error) {
	return p.supervise(1, name, path, args)
}

// keep also starts the program again when it ends, as a cluster does: users may kill one to see what happens.
func (p *programs) keep(name, path string, args ...string) (stop func() error, err error) {
	return p.supervise(tries, name, path, args)
}

func (p *programs) supervise(tries int, name, path string, args []string) (stop func() error, err error) {
	first, err := p.launch(name, path, args)
	if err != nil {
		return nil, err
	}
	stopping, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- p.watch(first, tries, stopping) }()
	return sync.OnceValue(func() error {
		close(stopping)
		return <-stopped
	}), nil
}

// watch returns when the program was stopped, or ended too often.
func (p *programs) watch(c *child, tries int, stopping <-chan struct{}) error {
	for early := 0; ; {
		started := time.Now()
		select {
		case <-stopping:
			return c.end()
		case <-c.ended:
		}
		early++
		if tries > 1 && time.Since(started) > soon {
			early = 0
		}
		if early == tries {
			p.fail(c.failure())
			return nil
		}
		fmt.Printf("==> %s ended (%v); starting it again\n", c.name, c.program.ProcessState)
		select {
		case <-stopping:
			return nil
		case <-time.After(restartPause):
		}
		next, err := p.launch(c.name, c.program.Path, c.program.Args[1:])
		if err != nil {
			p.fail(err)
			return nil
		}
		if note := p.restarted[c.name]; note != "" {
			fmt.Printf("==> %s\n", note)
		}
		c = next
	}
}
