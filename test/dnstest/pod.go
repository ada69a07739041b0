package dnstest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// StartForPods is Start on port 53, the only one that resolv.conf can name, of an address of loopback.
func StartForPods(t testing.TB) *Server {
	t.Helper()
	var err error
	for last := 1; last < 255; last++ { // several tests may run at the same time
		var conn net.PacketConn
		if conn, err = net.ListenPacket("udp", fmt.Sprintf("127.0.53.%d:53", last)); err == nil {
			return start(t, conn)
		}
	}
	t.Fatalf("%v: run as root, or set the sysctl net.ipv4.ip_unprivileged_port_start to 53", err)
	return nil
}

// mountAndRun covers resolv.conf in the shell's mount namespace.
const mountAndRun = `mount -t tmpfs none /mnt && printf %s "$0" >/mnt/resolv.conf && mount --bind /mnt/resolv.conf /etc/resolv.conf && exec "$@"`

// Pod returns a command that runs the program with the resolv.conf of a pod in the namespace: this server, and the
// search list and ndots:5 that Kubernetes writes. It does so in a mount namespace of its own; the process keeps its pid.
func (s *Server) Pod(namespace, program string, args ...string) *exec.Cmd {
	server, _, _ := strings.Cut(s.conn.LocalAddr().String(), ":")
	const domain = "svc.cluster.local"
	text := fmt.Sprintf("nameserver %s\nsearch %s.%s %s cluster.local\noptions ndots:5\n", server, namespace, domain, domain)
	unshare := []string{"--mount"}
	if os.Getuid() != 0 {
		unshare = append(unshare, "--map-root-user")
	}
	unshare = append(unshare, "sh", "-c", mountAndRun, text, program)
	return exec.Command("unshare", append(unshare, args...)...)
}
