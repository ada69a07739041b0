package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// patienceToStop is how long a program may take to stop before it is killed.
const patienceToStop = 15 * time.Second

// programs are the child processes. When one ends before its time, all of the environment ends.
type programs struct {
	logs string
	fail context.CancelCauseFunc
}

// start runs a program that logs to NAME.log, and returns what stops it.
func (p *programs) start(name, path string, args ...string) (stop func() error, err error) {
	logFile := filepath.Join(p.logs, name+".log")
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("make a log file: %w", err)
	}
	defer func() { _ = log.Close() }()     // the child has its own
	program := exec.Command(path, args...) //nolint:noctx // it is stopped in its turn, not all at once
	program.Stdout, program.Stderr = log, log
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := program.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}

	ended, stopping := make(chan struct{}), make(chan struct{})
	go func() {
		_ = program.Wait()
		close(ended)
		select {
		case <-stopping:
		default:
			p.fail(fmt.Errorf("%s ended unexpectedly (%v); the end of %s:\n%s", name, program.ProcessState, logFile, tail(logFile)))
		}
	}()
	return func() error {
		close(stopping)
		return end(name, program.Process, ended)
	}, nil
}

// end asks a process to stop, and kills it when it does not.
func end(name string, process *os.Process, ended <-chan struct{}) error {
	if err := process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	select {
	case <-ended:
		return nil
	case <-time.After(patienceToStop):
		err := process.Kill()
		<-ended
		return errors.Join(fmt.Errorf("%s did not stop within %s and was killed", name, patienceToStop), err)
	}
}

// tail is the last lines of a log.
func tail(path string) string {
	const lines = 15
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
