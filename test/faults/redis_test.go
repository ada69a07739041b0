//go:build faults

package faults

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// pairs are the shards of a Redis. Each has two servers, of which one is the master: which one is asked whenever it
// matters, for on a busy machine a failover may come that nobody provoked.
type pairs struct {
	url      string // where the roles find the master
	shards   [][]member
	cluster  bool
	watchers []*goredis.SentinelClient // those of the Sentinels, if it is no cluster
}

// member is one of the servers.
type member struct {
	*redistest.Server

	keeper *goredis.Client
}

func startMember(t *testing.T, args ...string) member {
	t.Helper()
	server := redistest.Start(t, args...)
	return member{server, newKeeper(t, server)}
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
	return !slices.ContainsFunc(p.watchers, func(watcher *goredis.SentinelClient) bool {
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
	// A Sentinel that does not know the new master yet would have it follow the old one, which is empty.
	p.agreed(t, pair, survivor)
	if p.cluster { // a Redis Cluster does it without help
		killed.Start()
	} else {
		host, port, _ := net.SplitHostPort(survivor.Addr())
		killed.Start("--replicaof", host+" "+port)
	}
	p.agreed(t, pair, killed, survivor)
}

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

// pairWith is the pair that has a bucket.
func (p pairs) pairWith(t *testing.T, tag string) int {
	t.Helper()
	if len(p.shards) == 1 {
		return 0
	}
	slot := p.shards[0][0].keeper.ClusterKeySlot(t.Context(), tag).Val()
	return int(slot) * clusterMasters / clusterSlots
}

// sentinels decide together, two of three, about one master that is silent for a second.
const sentinels = 3

// watchedBySentinels is one pair with Sentinels.
func watchedBySentinels(t *testing.T) pairs {
	t.Helper()
	return watchedBySentinelsWith(t, startMember)
}

// watchedBySentinelsWith is one pair whose replica is started by a function.
func watchedBySentinelsWith(t *testing.T, startReplica func(*testing.T, ...string) member) pairs {
	t.Helper()
	master := startMember(t, "--repl-diskless-sync-delay", "0")
	_, port, _ := net.SplitHostPort(master.Addr())
	p := pairs{shards: [][]member{{master, startReplica(t, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1 "+port)}}}
	p.agreed(t, 0, p.shards[0]...)
	var addresses []string
	for range sentinels {
		addresses = append(addresses, redistest.StartSentinel(t, "sentinel monitor pay 127.0.0.1 "+port+" 2",
			"sentinel down-after-milliseconds pay 1000", "sentinel failover-timeout pay 10000").Addr())
	}
	for _, address := range addresses {
		watcher := goredis.NewSentinelClient(&goredis.Options{Addr: address})
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

func newKeeper(t *testing.T, server *redistest.Server) *goredis.Client {
	t.Helper()
	keeper := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = keeper.Close() })
	return keeper
}

// tryFrozenReplica reports payments while the replica that must have them is frozen. The second report of one changes
// nothing, so it writes nothing; since Redis 7.2 WAIT answers at once on a connection that has written nothing.
func tryFrozenReplica(t *testing.T) (int, string) {
	t.Helper()
	p := watchedBySentinels(t)
	master, replica := p.roles(t, 0)
	// Not by the Sentinels: a master that nobody watches is not replaced while its replica is frozen.
	s := deployOn(t, "redis://"+master.Addr()+"/0", 2, 0, "--settlement-replicas", "1")
	s.Merchant("coffee")
	key, rail := s.apiKey("till", "coffee"), s.railToken()
	s.settlesEverywhere(rail)
	rounds, refused := 2**intensity, 0
	report := func(n int, id string) fixture.Answer {
		got, err := newCaller().call(s.replicas[n%2].internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", rail,
			`{"paymentRef":"card-1","outcome":"COMPLETED","amountCents":1250}`)
		s.must(err)
		return got
	}
	for range rounds {
		id := s.mustCall(http.StatusCreated, s.replicas[0].public, http.MethodPost, sessions, key, `{"amountCents":1250}`).Text("sessionId")
		replica.Pause()
		for n := range 8 { // on both API replicas, and on connections that reported before
			if got := report(n, id); !unavailable(got) || got.Header.Get("Retry-After") == "" {
				t.Errorf("report %d, with the replica frozen: %d %v; want 503 with Retry-After", n+1, got.Status, got.Body)
				continue
			}
			refused++
		}
		replica.Resume()
		eventuallySees(t, "the report is answered as the first one would have been", func() (string, bool) {
			got := report(0, id)
			return fmt.Sprint(got.Status, got.Body), got.Status == http.StatusOK && got.Body["applied"] == true
		})
	}
	return rounds, fmt.Sprintf("%d reports got 503 while the replica was frozen, each session was settled once it followed", refused)
}
