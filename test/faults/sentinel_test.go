//go:build faults

package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// pairs are masters of Redis with a replica each that takes over from its master.
type pairs struct {
	url      string // where the roles find whoever is the master
	masters  []*redistest.Server
	replicas []*redistest.Server
	watchers []*redis.SentinelClient // those of the Sentinels
}

// sentinels decide together, two of three, about one master that is silent for a second.
const sentinels = 3

// watchedBySentinels is one pair with Sentinels.
func watchedBySentinels(t *testing.T) pairs {
	t.Helper()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	_, port, _ := net.SplitHostPort(master.Addr())
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	awaitReplication(t, replica)
	var addresses []string
	for range sentinels {
		addresses = append(addresses, startSentinel(t, port))
	}
	var watchers []*redis.SentinelClient
	for _, address := range addresses {
		watcher := redis.NewSentinelClient(&redis.Options{Addr: address})
		watchers = append(watchers, watcher)
		t.Cleanup(func() { _ = watcher.Close() })
		eventually(t, "a Sentinel knows the replica and the other Sentinels", func() bool {
			return len(watcher.Replicas(t.Context(), "pay").Val()) == 1 && len(watcher.Sentinels(t.Context(), "pay").Val()) == sentinels-1
		})
	}
	return pairs{
		url:     "redis+sentinel://" + addresses[0] + "/0?master_name=pay&addr=" + strings.Join(addresses[1:], "&addr="),
		masters: []*redistest.Server{master}, replicas: []*redistest.Server{replica}, watchers: watchers,
	}
}

// rejoin starts the master that was killed again, empty, as the replica of the one that has taken over.
func (p pairs) rejoin(t *testing.T, pair int) {
	t.Helper()
	was, is := p.masters[pair], p.replicas[pair]
	keeper := keeperOf(t, is)
	eventually(t, "the replica is the master", func() bool {
		return strings.Contains(keeper.Info(t.Context(), "replication").Val(), "role:master")
	})
	host, port, _ := net.SplitHostPort(is.Addr())
	for _, watcher := range p.watchers {
		// One that has not heard of it yet would have the new master follow the old one, which is empty.
		eventually(t, "a Sentinel knows the new master", func() bool {
			return slices.Equal(watcher.GetMasterAddrByName(t.Context(), "pay").Val(), []string{host, port})
		})
	}
	was.Start()
	if len(p.masters) == 1 { // a Redis Cluster sees to it by itself
		if err := keeperOf(t, was).ReplicaOf(t.Context(), host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	awaitReplication(t, was)
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

func awaitReplication(t *testing.T, replica *redistest.Server) {
	t.Helper()
	keeper := keeperOf(t, replica)
	seen := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the replica at %s said of itself last:\n%s", replica.Addr(), seen)
		}
	})
	eventually(t, "the replica follows", func() bool {
		seen = keeper.Info(t.Context(), "replication").Val()
		return strings.Contains(seen, "master_link_status:up")
	})
}

func keeperOf(t *testing.T, server *redistest.Server) *redis.Client {
	t.Helper()
	keeper := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = keeper.Close() })
	return keeper
}
