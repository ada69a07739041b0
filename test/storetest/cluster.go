package storetest

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// Slots is how many a Redis Cluster has.
const Slots = 16384

// ClusterArgs make a redis-server one of a Redis Cluster whose servers give up none that is silent: the others go on, and on a busy machine
// each may be late for seconds.
var ClusterArgs = []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--repl-diskless-sync-delay", "0"}

// StartCluster starts a Redis Cluster of three masters that share the slots evenly. extraArgs are appended to the command line of each.
func StartCluster(t *testing.T, extraArgs ...string) []*redistest.Server {
	t.Helper()
	servers := make([]*redistest.Server, 3)
	for i := range servers {
		servers[i] = redistest.Start(t, slices.Concat(ClusterArgs, extraArgs)...)
		c := Inspect(t, servers[i])
		first, last := i*Slots/3, (i+1)*Slots/3-1
		Must(t, c.ClusterAddSlotsRange(t.Context(), first, last).Err())
		Must(t, c.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		for _, other := range servers[:i] { // each of them: gossip takes seconds
			host, port, err := net.SplitHostPort(other.Addr())
			Must(t, err)
			Must(t, c.ClusterMeet(t.Context(), host, port).Err())
		}
	}
	for _, server := range servers {
		c := Inspect(t, server)
		await.Until(t, Timeout, "the cluster is complete", func() bool {
			info := c.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	return servers
}
