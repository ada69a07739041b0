package store_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// startSentinel starts a Sentinel that alone decides about the master named pay, and returns its address.
func startSentinel(t *testing.T, masterPort string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := listener.Addr().String()
	must(t, listener.Close())
	_, port, err := net.SplitHostPort(addr)
	must(t, err)

	// A Sentinel writes what it learns into its configuration.
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	lines := fmt.Appendf(nil, "bind 127.0.0.1\nport %s\nsentinel monitor pay 127.0.0.1 %s 1\n", port, masterPort)
	must(t, os.WriteFile(config, lines, 0o600))
	binary, err := redistest.Binary()
	must(t, err)
	process := exec.CommandContext(t.Context(), binary, config, "--sentinel")
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.WaitDelay = patience
	must(t, process.Start())
	t.Cleanup(func() { _ = process.Wait() }) // the context of t has ended by then

	c := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	eventually(t, "the Sentinel answers", func() bool { return c.Ping(t.Context()).Err() == nil })
	return addr
}

// redis-sentinel is redis-server by another name; this is the failover as Sentinel does it.
func TestAFailoverBySentinel(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	_, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	eventually(t, "the replica follows", func() bool {
		return strings.Contains(client(t, replica).Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	sentinel := startSentinel(t, port)
	watcher := goredis.NewSentinelClient(&goredis.Options{Addr: sentinel, ReadTimeout: patience})
	defer func() { _ = watcher.Close() }()
	eventually(t, "the Sentinel knows the replica", func() bool {
		return len(watcher.Replicas(t.Context(), "pay").Val()) == 1
	})

	user := storetest.SentinelRights(t).User(t, goredis.NewClient(&goredis.Options{Addr: sentinel, ReadTimeout: patience, Protocol: 2, DisableIdentity: true}))
	name, password, _ := strings.Cut(user, ":")
	for _, server := range []*redistest.Server{master, replica} { // ACLs are not replicated
		storetest.UserURL(t, server)
	}
	s := open(t, "redis+sentinel://"+user+"@"+sentinel+"/0?master_name=pay&username="+name+"&password="+password)
	must(t, s.Check(t.Context()))
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	eventually(t, "the replica has the session", func() bool {
		return client(t, replica).Exists(t.Context(), bucketTag(asks.MerchantID)+"session:"+created.ID.String()).Val() == 1
	})
	eventually(t, "the Sentinel finds the replica good enough", func() bool {
		return watcher.Failover(t.Context(), "pay").Err() == nil
	})
	eventually(t, "the replica is the master", func() bool {
		return strings.Contains(client(t, replica).Info(t.Context(), "replication").Val(), "role:master")
	})
	eventually(t, "the store writes to the new master, which has the session", func() bool {
		_, read, err := s.Session(t.Context(), asks, created.ID)
		return err == nil && read.ID == created.ID
	})
}
