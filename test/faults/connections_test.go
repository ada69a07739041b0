//go:build faults

package faults

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// perRedis is how many connections to Redis a role may have, and perKube how many to the Kubernetes API: its watches and a
// few questions at a time.
var perRedis = 10 * runtime.GOMAXPROCS(0)

const perKube = 10

// connections waits until each role has no more connections than it needs, and none that the other side has closed.
func (s *deployment) connections() (seen string) {
	s.t.Helper()
	redis := portOf(s.t, s.toRedis.Listen)
	roles := append([]*process(nil), s.dispatchers...)
	for _, r := range s.replicas {
		roles = append(roles, r.process)
	}
	mostRedis, mostKube := 0, 0
	for _, role := range roles {
		kube := portOf(s.t, role.toKube.URL())
		eventually(s.t, role.name+" has no more connections than it needs", func() bool {
			open, halfClosed := connectionsOf(s.t, role.running.Process.Pid)
			mostRedis, mostKube = max(mostRedis, open[redis]), max(mostKube, open[kube])
			return halfClosed == 0 && open[redis] <= perRedis && open[kube] <= perKube
		})
	}
	return fmt.Sprintf("at most %d connections of a role to Redis and %d to Kubernetes", mostRedis, mostKube)
}

func portOf(t *testing.T, address string) int {
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

// connectionsOf counts those of a process that are established, by the port they lead to, and those that the other side
// has closed and the process has not.
func connectionsOf(t *testing.T, pid int) (established map[int]int, halfClosed int) {
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
