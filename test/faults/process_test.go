//go:build faults

package faults

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/dnstest"
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
	env     []string         // more of its environment
	names   *dnstest.Server  // which it asks as a pod does; nil: as the test does
	running *exec.Cmd
	ended   chan ending // receives how the running process ended
}

// ending is how a process ended; no error is 0.
type ending struct{ err error }

// launch starts it without waiting for more.
func (p *process) launch() error {
	cmd := exec.Command(shared.program, p.args...)
	if p.names != nil {
		cmd = p.names.Pod("payments", shared.program, p.args...)
	}
	cmd.Stdout, cmd.Stderr = shared.logs, shared.logs
	cmd.Env = slices.Concat(os.Environ(), shared.spans.variables(), p.env)
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

// hasEnded reports whether it has ended without being told to. Then launch starts it again.
func (p *process) hasEnded() bool {
	if p.running == nil {
		return false
	}
	select {
	case <-p.ended:
		p.running = nil
		return true
	default:
		return false
	}
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

// What a process shows of itself.
const (
	goroutines = "go_goroutines"
	resident   = "process_resident_memory_bytes"
	openFiles  = "process_open_fds"
	inFlight   = "merchant_operator_http_requests_in_flight"
	// connections are of the public listener.
	connections = "merchant_operator_http_connections"
)

// What a process may take more than before, for what its callers hold and for what is freed late.
const (
	spareGoroutines = 150
	spareMemory     = 96 << 20
)

// readMetrics are those of the process at an ops port.
func readMetrics(t testing.TB, ops string) map[string]*dto.MetricFamily {
	t.Helper()
	response, err := http.Get("http://" + ops + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// gauges reads what the process at an ops port shows.
func gauges(t testing.TB, ops string) map[string]float64 {
	t.Helper()
	families := readMetrics(t, ops)
	shown := map[string]float64{}
	for _, name := range []string{goroutines, resident, openFiles} {
		shown[name] = families[name].GetMetric()[0].GetGauge().GetValue()
	}
	if api := families[inFlight].GetMetric(); len(api) > 0 {
		shown[inFlight] = api[0].GetGauge().GetValue()
	}
	for _, listener := range families[connections].GetMetric() {
		if listener.GetLabel()[0].GetValue() == "public" {
			shown[connections] = listener.GetGauge().GetValue()
		}
	}
	return shown
}

// checkFlat says whether a process has grown: during a fault within what its callers explain, and after it not at all.
func checkFlat(t *testing.T, ops string, before, during map[string]float64) {
	t.Helper()
	if grown := during[goroutines] - before[goroutines]; grown > spareGoroutines {
		t.Errorf("%.0f goroutines more during the fault", grown)
	}
	if grown := during[resident] - before[resident]; grown > spareMemory {
		t.Errorf("%.0f MB more during the fault", grown/1e6)
	}
	eventually(t, "there are as many goroutines and connections as before", func() bool {
		now := gauges(t, ops)
		return now[goroutines] < before[goroutines]+20 && now[openFiles] < before[openFiles]+20
	})
}

// perRedis is how many connections to Redis a role may have, and perKube how many to the Kubernetes API: its watches and a
// few questions at a time.
var perRedis = 10 * runtime.GOMAXPROCS(0)

const perKube = 10

// connections waits until each role has no more connections than it needs, and none that the other side has closed.
func (s *deployment) connections() (seen string) {
	s.t.Helper()
	redis := parsePort(s.t, s.toRedis.Listen)
	roles := append([]*process(nil), s.dispatchers...)
	for _, r := range s.replicas {
		roles = append(roles, r.process)
	}
	mostRedis, mostKube := 0, 0
	for _, role := range roles {
		kube := parsePort(s.t, role.toKube.URL())
		eventually(s.t, role.name+" has no more connections than it needs", func() bool {
			open, halfClosed := countConnections(s.t, role.running.Process.Pid)
			mostRedis, mostKube = max(mostRedis, open[redis]), max(mostKube, open[kube])
			return halfClosed == 0 && open[redis] <= perRedis && open[kube] <= perKube
		})
	}
	return fmt.Sprintf("at most %d connections of a role to Redis and %d to Kubernetes", mostRedis, mostKube)
}

func parsePort(t *testing.T, address string) int {
	t.Helper()
	if parsed, err := url.Parse(address); err == nil && parsed.Host != "" {
		address = parsed.Host
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// States of a connection in /proc/net/tcp.
const tcpEstablished, tcpCloseWait = "01", "08"

// countConnections counts those of a process that are established, by the port they lead to, and those that the other side
// has closed and the process has not.
func countConnections(t *testing.T, pid int) (established map[int]int, halfClosed int) {
	t.Helper()
	own := map[string]bool{} // sockets, as "socket:[inode]"
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil { // it may be closed by now
			own[target] = true
		}
	}
	established = map[int]int{}
	for _, table := range []string{"tcp", "tcp6"} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || !own["socket:["+fields[9]+"]"] {
				continue
			}
			_, hexPort, _ := strings.Cut(fields[2], ":")
			port, err := strconv.ParseInt(hexPort, 16, 32)
			if err != nil {
				continue // the heading
			}
			switch fields[3] {
			case tcpEstablished:
				established[int(port)]++
			case tcpCloseWait:
				halfClosed++
			}
		}
		_ = file.Close()
	}
	return established, halfClosed
}
