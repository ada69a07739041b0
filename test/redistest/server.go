package redistest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long a redis-server may take to start or to stop: far more than it needs on a busy machine.
const patience = 20 * time.Second

var loopback = net.IPv4(127, 0, 0, 1)

// Server is a redis-server on a port that it keeps when it is stopped and started again. Every start begins
// with an empty database, unless extraArgs let it keep one. A Server is not safe for use by several goroutines at once.
type Server struct {
	binary      string
	dir         string
	port        int
	extraArgs   []string
	sentinel    string   // the configuration of a Sentinel; empty: it is none
	environment []string // besides that of the test
	fatal       func(args ...any)

	stop    func()        // asks the running process to end; nil while there is none
	stopped chan struct{} // closed once that process has ended
	process *exec.Cmd
	output  *bytes.Buffer // not to be read before stopped is closed
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort(loopback.String(), strconv.Itoa(s.port)) }

// URL is redis://host:port/0.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Start starts a stopped server again, on the same port. moreArgs are appended to its command line from now on.
func (s *Server) Start(moreArgs ...string) {
	if s.stop != nil {
		s.fatal("redistest: the server is running already")
		return
	}
	s.extraArgs = slices.Concat(s.extraArgs, moreArgs)
	if err := s.start(); err != nil {
		s.fatal(err)
	}
}

// Stop ends the server and closes its connections. It does nothing when the server is stopped already.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
		<-s.stopped
		s.stop = nil
	}
}

// Kill ends the server as kill -9 does: it can write nothing more. It does nothing when the server is stopped already.
func (s *Server) Kill() {
	if s.stop == nil {
		return
	}
	s.signal(syscall.SIGKILL)
	<-s.stopped
	s.stop()
	s.stop = nil
}

// Pause freezes the server: connections stay open, and new ones are accepted by the kernel, but nothing is
// answered until Resume.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	if s.stop == nil {
		s.fatal("redistest: the server is stopped")
		return
	}
	if err := s.process.Process.Signal(sig); err != nil {
		s.fatal(fmt.Errorf("send %s to %s: %w", sig, s.binary, err))
	}
}

// start runs the process and returns when it answers.
func (s *Server) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	args := append([]string{
		"--bind", loopback.String(), "--port", strconv.Itoa(s.port), "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
	}, s.extraArgs...)
	if s.sentinel != "" {
		args = []string{s.sentinel, "--sentinel"}
	}
	process := exec.CommandContext(ctx, s.binary, args...)
	process.Env = append(os.Environ(), s.environment...)
	s.output = &bytes.Buffer{}
	process.Stdout, process.Stderr = s.output, s.output
	process.Cancel = func() error {
		_ = process.Process.Signal(syscall.SIGCONT) // a paused process would not act on the next one
		return process.Process.Signal(syscall.SIGTERM)
	}
	process.WaitDelay = patience
	if err := process.Start(); err != nil {
		cancel()
		return fmt.Errorf("start %s: %w", s.binary, err)
	}
	stopped := make(chan struct{})
	go func() {
		_ = process.Wait()
		close(stopped)
	}()
	s.process, s.stop, s.stopped = process, cancel, stopped
	if err := s.waitUntilReady(); err != nil {
		s.Stop()
		return fmt.Errorf("start %s on port %d: %w; it said:\n%s", s.binary, s.port, err, s.output)
	}
	return nil
}

// waitUntilReady also makes sure that it is this process that answers, and not another one on the same port, and
// that it has read what it kept: until then it only answers that it is loading.
func (s *Server) waitUntilReady() error {
	deadline := time.After(patience)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	ours := fmt.Sprintf("process_id:%d\r\n", s.process.Process.Pid)
	for {
		select {
		case <-s.stopped:
			return fmt.Errorf("it ended at once: %s", s.process.ProcessState)
		case <-deadline:
			return fmt.Errorf("no answer within %s", patience)
		case <-ticker.C:
			if said := s.info(); strings.Contains(said, ours) && strings.Contains(said, "+PONG") {
				return nil
			}
		}
	}
}

// info is what the server says about itself; empty when it does not answer.
func (s *Server) info() string {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("INFO server\r\nPING\r\n")); err != nil {
		return ""
	}
	answer := make([]byte, 8192)
	n, _ := conn.Read(answer) // what is missing comes with the next look
	return string(answer[:n])
}
