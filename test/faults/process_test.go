//go:build faults

package faults

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
)

// process is a role as a process of its own. It keeps its addresses when it is started again. Not safe for use
// by several goroutines at once.
type process struct {
	name    string
	args    []string
	ops     string           // host:port
	toKube  *kubeproxy.Proxy // its way to the Kubernetes API
	running *exec.Cmd
	ended   chan ending // receives how the running process ended
}

// ending is how a process ended; no error is 0.
type ending struct{ err error }

// launch starts it without waiting for more.
func (p *process) launch() error {
	cmd := exec.Command(shared.program, p.args...)
	cmd.Stdout, cmd.Stderr = shared.logs, shared.logs
	cmd.Env = append(os.Environ(), shared.spans.variables()...)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan ending, 1)
	go func() { ended <- ending{cmd.Wait()} }()
	p.running, p.ended = cmd, ended
	return nil
}

// start returns when it is ready.
func (p *process) start() error {
	if err := p.launch(); err != nil {
		return err
	}
	deadline := time.After(fixture.Patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !p.ready() {
		select {
		case end := <-p.ended:
			p.running = nil
			return fmt.Errorf("%s ended before it was ready: %w\n%s", p.name, end.err, shared.logs)
		case <-deadline:
			return fmt.Errorf("%s is not ready\n%s", p.name, shared.logs)
		case <-tick.C:
		}
	}
	return nil
}

func (p *process) ready() bool {
	answer, err := prober.Get("http://" + p.ops + "/readyz")
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// prober asks ops ports. Its fixture.Patience is that of a kubelet with a generous configuration.
var prober = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// restart starts what was killed.
func (p *process) restart(t testing.TB) {
	t.Helper()
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
}

// kill ends it as kill -9 does, and returns when it is gone.
func (p *process) kill() {
	if p.running == nil {
		return
	}
	_ = p.running.Process.Kill()
	<-p.ended
	p.running = nil
}

func (p *process) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := p.running.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// stop ends it in order, and returns how it ended.
func (p *process) stop() error {
	if p.running == nil {
		return nil
	}
	defer func() { p.running = nil }()
	if err := p.running.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case end := <-p.ended:
		return end.err
	case <-time.After(fixture.Patience):
		return errors.Join(fmt.Errorf("%s did not stop", p.name), p.running.Process.Kill())
	}
}

// eventuallySees is eventually, and says at the end what was seen last.
func eventuallySees(t testing.TB, what string, look func() (seen string, holds bool)) {
	t.Helper()
	await.Seeing(t, fixture.Patience, what, look)
}

// eventually waits for a condition; what must hold at once is asserted without it.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	await.Until(t, fixture.Patience, what, holds)
}
