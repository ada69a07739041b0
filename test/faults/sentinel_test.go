//go:build faults

package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// sentinels decide together, two of three, about one master that is silent for a second.
const sentinels = 3

// watchedBySentinels is one pair with Sentinels.
func watchedBySentinels(t *testing.T) pairs {
	t.Helper()
	master := startMember(t, "--repl-diskless-sync-delay", "0")
	_, port, _ := net.SplitHostPort(master.Addr())
	p := pairs{shards: [][]member{{master, startMember(t, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1 "+port)}}}
	p.agreed(t, 0, p.shards[0]...)
	var addresses []string
	for range sentinels {
		addresses = append(addresses, startSentinel(t, port))
	}
	for _, address := range addresses {
		watcher := redis.NewSentinelClient(&redis.Options{Addr: address})
		t.Cleanup(func() { _ = watcher.Close() })
		p.watchers = append(p.watchers, watcher)
		eventuallySees(t, "a Sentinel knows the replica and the other Sentinels", func() (string, bool) {
			replicas, others := watcher.Replicas(t.Context(), "pay"), watcher.Sentinels(t.Context(), "pay")
			return fmt.Sprintf("it says\n%s\n%s", replicas, others), len(replicas.Val()) == 1 && len(others.Val()) == sentinels-1
		})
	}
	p.url = "redis+sentinel://" + addresses[0] + "/0?master_name=pay&addr=" + strings.Join(addresses[1:], "&addr=")
	return p
}

func startSentinel(t *testing.T, masterPort string) (address string) {
	t.Helper()
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	// A Sentinel writes what it learns into its configuration.
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	lines := fmt.Appendf(nil, "bind 127.0.0.1\nport %s\nsentinel monitor pay 127.0.0.1 %s 2\n"+
		"sentinel down-after-milliseconds pay 1000\nsentinel failover-timeout pay 10000\n", port, masterPort)
	if err := os.WriteFile(config, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	binary, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(binary, config, "--sentinel")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	return address
}

func keeperOf(t *testing.T, server *redistest.Server) *redis.Client {
	t.Helper()
	keeper := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = keeper.Close() })
	return keeper
}
