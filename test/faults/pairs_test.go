//go:build faults

package faults

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// pairs are the shards of a Redis. Each has two servers, of which one is the master: which one is asked whenever it
// matters, for on a busy machine a failover may come that nobody provoked.
type pairs struct {
	url      string // where the roles find whoever is the master
	shards   [][]member
	cluster  bool
	watchers []*redis.SentinelClient // those of the Sentinels, if it is no cluster
}

// member is one of the servers.
type member struct {
	*redistest.Server

	keeper *redis.Client
}

func startMember(t *testing.T, args ...string) member {
	t.Helper()
	server := redistest.Start(t, args...)
	return member{server, keeperOf(t, server)}
}

// agreed waits until one of the servers of a pair, of those that run, is the master in everybody's eyes and the others
// follow it. It fails the test with what each server and each Sentinel said last.
func (p pairs) agreed(t *testing.T, pair int, running ...member) (master member) {
	t.Helper()
	eventuallySees(t, fmt.Sprintf("one of %d servers is the master for all, and the others follow it", len(running)), func() (string, bool) {
		seen, masters := p.view(t, pair, running)
		if len(masters) != 1 {
			return seen, false
		}
		master = masters[0]
		return seen, p.followed(t, master, running)
	})
	return master
}

// view is what everybody says, for people, and who says of itself that it is the master.
func (p pairs) view(t *testing.T, pair int, running []member) (seen string, masters []member) {
	t.Helper()
	var said strings.Builder
	for _, m := range running {
		info, err := m.keeper.Info(t.Context(), "replication").Result()
		fmt.Fprintf(&said, "the server at %s of pair %d says (%v):\n%s\n", m.Addr(), pair, err, info)
		if fact(info, "role") == "master" {
			masters = append(masters, m)
		}
		if p.cluster {
			fmt.Fprintf(&said, "and of its cluster:\n%s\n%s\n", m.keeper.ClusterInfo(t.Context()), m.keeper.ClusterNodes(t.Context()))
		}
	}
	for n, watcher := range p.watchers {
		fmt.Fprintf(&said, "Sentinel %d says: %s\n%s\n", n+1, watcher.GetMasterAddrByName(t.Context(), "pay"), watcher.Replicas(t.Context(), "pay"))
	}
	return said.String(), masters
}

// followed reports whether all others follow the master, and every Sentinel or every server of the cluster knows it.
func (p pairs) followed(t *testing.T, master member, running []member) bool {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	for _, m := range running {
		info := m.keeper.Info(t.Context(), "replication").Val()
		follows := fact(info, "master_link_status") == "up" && fact(info, "master_host") == host && fact(info, "master_port") == port
		if m != master && !follows {
			return false
		}
		if p.cluster && fact(m.keeper.ClusterInfo(t.Context()).Val(), "cluster_state") != "ok" {
			return false
		}
	}
	return !slices.ContainsFunc(p.watchers, func(watcher *redis.SentinelClient) bool {
		return !slices.Equal(watcher.GetMasterAddrByName(t.Context(), "pay").Val(), []string{host, port})
	})
}

// fact is a line of INFO.
func fact(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), name+":"); found {
			return value
		}
	}
	return ""
}

// roles are who is the master of a pair and who follows it.
func (p pairs) roles(t *testing.T, pair int) (master, replica member) {
	t.Helper()
	both := p.shards[pair]
	master = p.agreed(t, pair, both...)
	if master == both[0] {
		return master, both[1]
	}
	return master, both[0]
}

// rejoin starts a server that was killed again, empty, as the replica of the one that has taken over.
func (p pairs) rejoin(t *testing.T, pair int, killed, survivor member) {
	t.Helper()
	// A Sentinel that has not heard of the new master yet would have it follow the old one, which is empty.
	p.agreed(t, pair, survivor)
	if p.cluster { // a Redis Cluster sees to it by itself
		killed.Start()
	} else {
		host, port, _ := net.SplitHostPort(survivor.Addr())
		killed.Start("--replicaof", host+" "+port)
	}
	p.agreed(t, pair, killed, survivor)
}
