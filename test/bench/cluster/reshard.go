package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	client "github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// movedBuckets are moved under load, from the first primary to the second.
const movedBuckets = 3

// join makes a cluster of the nodes, with redis-cli's default distribution of slots.
func (s *side) join(ctx context.Context) {
	for bucket := range session.Buckets {
		s.bucketSlots = append(s.bucketSlots, int(fixture.Must(s.nodes[0].ClusterKeySlot(ctx, client.BucketKeyspace(session.Bucket(bucket)).Key("queue")).Result())))
	}
	args := []string{"--cluster", "create", "--cluster-yes"}
	for _, node := range s.nodes {
		args = append(args, node.Addr())
	}
	s.redisCLI(ctx, args...)
}

// redisCLI changes the cluster with redis-cli (or valkey-cli), and waits until all nodes agree.
func (s *side) redisCLI(ctx context.Context, args ...string) {
	server := fixture.Must(redistest.Binary())
	cli := filepath.Join(filepath.Dir(server), strings.Replace(filepath.Base(server), "-server", "-cli", 1))
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := exec.CommandContext(limited, cli, args...)
	command.WaitDelay = time.Second
	if printed, err := command.CombinedOutput(); err != nil {
		fixture.Check(fmt.Errorf("%s %s: %w: %s", cli, strings.Join(args, " "), err, printed))
	}
	s.awaitAgreement(ctx)
}

// clusterURL is the URL for --redis-url.
func (s *side) clusterURL() string {
	others := url.Values{}
	for _, node := range s.nodes[1:] {
		others.Add("addr", node.Addr())
	}
	return (&url.URL{Scheme: "redis+cluster", Host: s.nodes[0].Addr(), RawQuery: others.Encode()}).String()
}

// awaitAgreement waits until all nodes agree on the owner of each slot.
func (s *side) awaitAgreement(ctx context.Context) {
	fixture.Check(fixture.Eventually(ctx, func() error {
		var agreed []owned
		for i, node := range s.nodes {
			state, err := node.ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(state, "cluster_state:ok") {
				return fmt.Errorf("the cluster is not complete for %s: %w", node.Addr(), err)
			}
			seen := s.ownedAccordingTo(ctx, node)
			if i > 0 && !slices.EqualFunc(seen, agreed, func(a, b owned) bool { return slices.Equal(a.slots, b.slots) }) {
				return errors.New("the servers do not agree on the owner of each slot")
			}
			agreed = seen
		}
		return nil
	}))
}

// owned are the slots of a primary, and those of them that hold a bucket, in ascending order.
type owned struct{ slots, bucketSlots []int }

// ownedAccordingTo asks a node what each primary owns.
func (s *side) ownedAccordingTo(ctx context.Context, node *fixture.Redis) []owned {
	all := make([]owned, len(s.nodes))
	for _, shard := range fixture.Must(node.ClusterShards(ctx).Result()) {
		address := net.JoinHostPort(shard.Nodes[0].IP, strconv.FormatInt(shard.Nodes[0].Port, 10))
		i := slices.IndexFunc(s.nodes, func(n *fixture.Redis) bool { return n.Addr() == address })
		if i < 0 {
			fixture.Check(fmt.Errorf("the cluster has an unknown server %s", address))
		}
		slices.SortFunc(shard.Slots, func(a, b redis.SlotRange) int { return cmp.Compare(a.Start, b.Start) })
		for _, r := range shard.Slots {
			for slot := int(r.Start); slot <= int(r.End); slot++ {
				all[i].slots = append(all[i].slots, slot)
				if slices.Contains(s.bucketSlots, slot) {
					all[i].bucketSlots = append(all[i].bucketSlots, slot)
				}
			}
		}
	}
	return all
}

// shares are those of each primary.
type shares struct {
	Buckets   []int     `json:"buckets"`
	Merchants []int     `json:"merchants"`
	Scripts   []float64 `json:"scripts"`
}

func (s *shares) addScripts(of sample) {
	for i, scripts := range of.Scripts {
		s.Scripts[i] += scripts
	}
}

// shares counts the buckets and merchants of each primary.
func (b *bench) shares(ctx context.Context) shares {
	all := b.cluster.ownedAccordingTo(ctx, b.cluster.nodes[0])
	out := shares{make([]int, len(all)), make([]int, len(all)), make([]float64, len(all))}
	for i, of := range all {
		out.Buckets[i] = len(of.bucketSlots)
		for _, m := range b.merchants {
			if slices.Contains(of.bucketSlots, b.cluster.bucketSlots[session.MerchantBucket(m.ID)]) {
				out.Merchants[i]++
			}
		}
	}
	return out
}

// spread is the largest share divided by the mean: 1 is perfectly even.
func spread(shares []float64) float64 {
	var sum float64
	for _, share := range shares {
		sum += share
	}
	return slices.Max(shares) * float64(len(shares)) / max(sum, 1)
}

// moves describes the buckets that were moved to another server while merchants created sessions.
type moves struct {
	Buckets int           `json:"buckets"`
	Slots   int           `json:"slots"`
	Keys    int64         `json:"keys"`
	Took    time.Duration `json:"tookNanoseconds"`
	During  checked       `json:"during"` // what callers saw
	After   checked       `json:"after"`
}

// reshard moves buckets while every merchant creates, reads and cancels sessions.
func (b *bench) reshard(ctx context.Context) (m moves) {
	moved := make(chan error, 1)
	go func() { moved <- fixture.Try(func() { b.cluster.moveBuckets(ctx, &m) }) }()
	var during checked
	for round := 0; ; round++ {
		during.add(b.check(ctx, b.cluster, b.merchants, fmt.Sprintf("moving-%d", round)))
		select {
		case err := <-moved:
			fixture.Check(err)
			m.During, m.After = during, b.check(ctx, b.cluster, b.merchants, "moved")
			return m
		default:
		}
	}
}

// moveBuckets moves the buckets in the lowest slots of the first primary to the second, with the slots between them.
func (s *side) moveBuckets(ctx context.Context, m *moves) {
	started := time.Now()
	from, to := s.nodes[0], s.nodes[1]
	for range movedBuckets {
		own := s.ownedAccordingTo(ctx, from)[0]
		next := own.bucketSlots[0]
		count := 1 + slices.Index(own.slots, next) // redis-cli moves the lowest slots first
		m.Buckets, m.Slots = m.Buckets+1, m.Slots+count
		m.Keys += fixture.Must(from.ClusterCountKeysInSlot(ctx, next).Result())
		s.redisCLI(ctx, "--cluster", "reshard", from.Addr(), "--cluster-from", clusterID(ctx, from),
			"--cluster-to", clusterID(ctx, to), "--cluster-slots", strconv.Itoa(count), "--cluster-yes")
	}
	m.Took = time.Since(started)
}

func clusterID(ctx context.Context, node *fixture.Redis) string {
	return fixture.Must(node.Do(ctx, "CLUSTER", "MYID").Text())
}
