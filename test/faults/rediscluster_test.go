//go:build faults

package faults

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
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
	var masters, replicas []member
	for range clusterMasters {
		masters, replicas = append(masters, startMember(t, clusterArgs...)), append(replicas, startMember(t, clusterArgs...))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(masters[0].Addr())
	must(err)
	for i, m := range slices.Concat(masters, replicas) {
		if i < clusterMasters {
			must(m.keeper.ClusterAddSlotsRange(t.Context(), i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1).Err())
		}
		must(m.keeper.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if i > 0 {
			must(m.keeper.ClusterMeet(t.Context(), host, port).Err())
		}
	}
	p := pairs{cluster: true}
	for i, replica := range replicas {
		id, err := masters[i].keeper.Do(t.Context(), "CLUSTER", "MYID").Text()
		must(err)
		eventuallySees(t, "the replica knows its master", func() (string, bool) {
			err := replica.keeper.ClusterReplicate(t.Context(), id).Err()
			return fmt.Sprintf("it says: %v\n%s", err, replica.keeper.ClusterNodes(t.Context())), err == nil
		})
		p.shards = append(p.shards, []member{masters[i], replica})
	}
	for pair := range p.shards {
		p.roles(t, pair)
	}
	for _, m := range slices.Concat(masters, replicas) {
		eventuallySees(t, "the cluster is complete", func() (string, bool) {
			nodes := m.keeper.ClusterNodes(t.Context()).Val()
			return m.Addr() + " says:\n" + nodes, strings.Count(nodes, "slave ") == clusterMasters && !strings.Contains(nodes, "handshake")
		})
	}
	p.url = "redis+cluster://" + masters[0].Addr() + "?addr=" + masters[1].Addr() + "&addr=" + replicas[0].Addr()
	return p
}

// of is the pair that has a bucket.
func (p pairs) of(t *testing.T, tag string) int {
	t.Helper()
	if len(p.shards) == 1 {
		return 0
	}
	slot := p.shards[0][0].keeper.ClusterKeySlot(t.Context(), tag).Val()
	return int(slot) * clusterMasters / clusterSlots
}
