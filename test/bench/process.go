package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is for what takes milliseconds on an idle machine.
const patience = 60 * time.Second

// process is a server that is measured.
type process struct {
	command *exec.Cmd
	// address is where it serves, statistics the URL that tells its allocations.
	address, statistics string
}

// start runs a program, which ends with the stand.
func (s *stand) start(ctx context.Context, program string, in io.Reader, args ...string) (*process, io.Reader, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Stdin, command.Stderr = in, s.log
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = patience
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", program, err)
	}
	s.onStop(func() error {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // it was told to end
		return nil
	})
	return &process{command: command}, out, nil
}

// startServer runs this program as a server.
func (s *stand) startServer(ctx context.Context, told io.Reader) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	started, out, err := s.start(ctx, self, told, serveWord)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("start a server: %w; its log is %s", err, s.log.Name())
	}
	started.address = strings.TrimSpace(line)
	started.statistics = "http://" + started.address + mallocsPath
	return started, nil
}

// usage is what a process has used up since it was started.
type usage struct {
	cpu     time.Duration
	mallocs float64
}

const mallocsMetric = "go_memstats_mallocs_total"

func (p *process) usage(ctx context.Context) (usage, error) {
	cpu, err := cpuOf(p.command.Process.Pid)
	if err != nil {
		return usage{}, err
	}
	mallocs, err := metricAt(ctx, p.statistics, mallocsMetric)
	return usage{cpu, mallocs}, err
}

// cpuOf is the time a process has had on all processors, as the scheduler counts it for each thread.
func cpuOf(pid int) (time.Duration, error) {
	threads := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(threads)
	if err != nil {
		return 0, err
	}
	var total time.Duration
	for _, entry := range entries {
		text, err := os.ReadFile(threads + "/" + entry.Name() + "/schedstat")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		nanoseconds, _, _ := strings.Cut(string(text), " ")
		spent, err := strconv.ParseInt(nanoseconds, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(spent)
	}
	return total, nil
}

// metricAt reads a metric without labels.
func metricAt(ctx context.Context, url, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(fmt.Errorf("%s does not tell %s", url, name), lines.Err())
}
