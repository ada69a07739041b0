package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// server is one that is measured.
type server struct {
	*process.Process

	// address is where it serves, statistics the URL that tells its allocations.
	address, statistics string
}

// start runs a program, which ends with the stand.
func (s *stand) start(ctx context.Context, program string, in io.Reader, args ...string) (*server, io.Reader, error) {
	started, out, err := process.Start(ctx, s.log, in, program, args...)
	if err != nil {
		return nil, nil, err
	}
	s.onStop(func() error { started.Stop(); return nil })
	return &server{Process: started}, out, nil
}

// startServer runs this program as a server.
func (s *stand) startServer(ctx context.Context, told io.Reader) (*server, error) {
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

// usage is what a server has used up since it was started.
type usage struct {
	cpu     time.Duration
	mallocs float64
}

const mallocsMetric = "go_memstats_mallocs_total"

func (s *server) usage(ctx context.Context) (usage, error) {
	cpu, err := process.CPU(s.PID())
	if err != nil {
		return usage{}, err
	}
	mallocs, err := process.Metric(ctx, s.statistics, mallocsMetric)
	return usage{cpu, mallocs}, err
}
