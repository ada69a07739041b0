//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// program is one that runs as long as the cluster does.
type program struct {
	name string
	args []string
}

// supervise starts all programs and, a second after one ended, that one again. It is also what an init has to be: it
// collects every process whose parent has gone, the shims of containers above all.
func supervise(logs string, all []program) error {
	running := map[int]program{}
	again := make(chan program, len(all))
	for _, one := range all {
		again <- one
	}
	ended := make(chan int)
	go collect(ended)
	for {
		select {
		case one := <-again:
			pid, err := start(logs, one)
			if err != nil {
				return err
			}
			running[pid] = one
		case pid := <-ended:
			one, ours := running[pid]
			if !ours {
				continue
			}
			delete(running, pid)
			fmt.Fprintf(os.Stderr, "%s %s ended; it is started again\n", time.Now().UTC().Format(time.RFC3339), one.name)
			time.AfterFunc(time.Second, func() { again <- one })
		}
	}
}

// collect says which children ended. It is the only one that waits for any.
func collect(ended chan<- int) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		switch {
		case err == nil:
			ended <- pid
		case errors.Is(err, syscall.ECHILD):
			<-ticker.C // nothing runs yet
		}
	}
}

func start(logs string, one program) (pid int, err error) {
	path, err := exec.LookPath(one.name)
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(filepath.Join(logs, one.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("make a log file: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer func() { _ = nothing.Close() }()
	process, err := os.StartProcess(path, append([]string{one.name}, one.args...), &os.ProcAttr{
		Files: []*os.File{nothing, log, log},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", one.name, err)
	}
	pid = process.Pid
	return pid, process.Release()
}
