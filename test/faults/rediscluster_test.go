//go:build faults

package faults

import (
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const (
	clusterMasters = 3
	clusterSlots   = 16384
)

// clusterArgs let a server be missed after two seconds.
var clusterArgs = []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0"}

// redisCluster shares the slots evenly between masters with a replica each.
func redisCluster(t *testing.T) pairs {
	t.Helper()
	var p pairs
	var all []*redis.Client
	start := func() *redistest.Server {
		server := redistest.Start(t, clusterArgs...)
		all = append(all, keeperOf(t, server))
		return server
	}
	for range clusterMasters {
		p.masters = append(p.masters, start())
	}
	for range clusterMasters {
		p.replicas = append(p.replicas, start())
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(p.masters[0].Addr())
	must(err)
	for i, keeper := range all {
		if i < clusterMasters {
			must(keeper.ClusterAddSlotsRange(t.Context(), i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1).Err())
		}
		must(keeper.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if i > 0 {
			must(keeper.ClusterMeet(t.Context(), host, port).Err())
		}
	}
	for i, replica := range p.replicas {
		id, err := all[i].Do(t.Context(), "CLUSTER", "MYID").Text()
		must(err)
		keeper := all[clusterMasters+i]
		eventually(t, "the replica knows its master", func() bool { return keeper.ClusterReplicate(t.Context(), id).Err() == nil })
		awaitReplication(t, replica)
	}
	for _, keeper := range all {
		eventually(t, "the cluster is complete", func() bool {
			info, nodes := keeper.ClusterInfo(t.Context()).Val(), keeper.ClusterNodes(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Count(nodes, "slave ") == clusterMasters && !strings.Contains(nodes, "handshake")
		})
	}
	p.url = "redis+cluster://" + p.masters[0].Addr() + "?addr=" + p.masters[1].Addr() + "&addr=" + p.replicas[0].Addr()
	return p
}

// of is the pair that has a bucket.
func (p pairs) of(t *testing.T, tag string) int {
	t.Helper()
	if len(p.masters) == 1 {
		return 0
	}
	slot := keeperOf(t, p.masters[0]).ClusterKeySlot(t.Context(), tag).Val()
	return int(slot) * clusterMasters / clusterSlots
}
