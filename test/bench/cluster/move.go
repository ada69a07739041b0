package cluster

import (
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

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// primaries of the cluster.
const primaries = 3

// join makes a cluster of the nodes as redis-cli does it if nothing else is said.
func (s *side) join(ctx context.Context) {
	args := []string{"--cluster", "create", "--cluster-yes"}
	for _, node := range s.nodes {
		args = append(args, node.Addr())
	}
	s.redisCLI(ctx, args...)
}

// redisCLI changes the cluster with redis-cli (or with the one of another server), and waits until all nodes agree.
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

// clusterURL is the form that the product takes.
func (s *side) clusterURL() string {
	others := url.Values{}
	for _, node := range s.nodes[1:] {
		others.Add("addr", node.Addr())
	}
	return (&url.URL{Scheme: "redis+cluster", Host: s.nodes[0].Addr(), RawQuery: others.Encode()}).String()
}

// awaitAgreement waits until all nodes agree on who has which slots.
func (s *side) awaitAgreement(ctx context.Context) {
	fixture.Check(fixture.Eventually(ctx, func() error {
		var agreed []holding
		for i, node := range s.nodes {
			state, err := node.ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(state, "cluster_state:ok") {
				return fmt.Errorf("the cluster is not complete for %s: %w", node.Addr(), err)
			}
			held := s.heldAsSeenBy(ctx, node)
			if i > 0 && !slices.EqualFunc(held, agreed, func(a, b holding) bool { return slices.Equal(a.slots, b.slots) }) {
				return errors.New("the servers do not agree on who has which slots")
			}
			agreed = held
		}
		return nil
	}))
}

// holding is the slots of a primary, and those of them that are of buckets, in their order.
type holding struct{ slots, buckets []int }

// heldAsSeenBy asks a node what each primary has.
func (s *side) heldAsSeenBy(ctx context.Context, node *fixture.Redis) []holding {
	taken, held := bucketSlots(), make([]holding, len(s.nodes))
	for _, shard := range fixture.Must(node.ClusterShards(ctx).Result()) {
		for _, server := range shard.Nodes {
			address := net.JoinHostPort(server.IP, strconv.FormatInt(server.Port, 10))
			i := slices.IndexFunc(s.nodes, func(n *fixture.Redis) bool { return n.Addr() == address })
			if i < 0 {
				fixture.Check(fmt.Errorf("the cluster has an unknown server %s", address))
			}
			for _, r := range shard.Slots {
				for slot := int(r.Start); slot <= int(r.End); slot++ {
					held[i].slots = append(held[i].slots, slot)
					if _, isBucket := slices.BinarySearch(taken, slot); isBucket {
						held[i].buckets = append(held[i].buckets, slot)
					}
				}
			}
		}
	}
	for _, h := range held {
		slices.Sort(h.slots)
		slices.Sort(h.buckets)
	}
	return held
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
	held := b.cluster.heldAsSeenBy(ctx, b.cluster.nodes[0])
	all := shares{make([]int, len(held)), make([]int, len(held)), make([]float64, len(held))}
	for i, h := range held {
		all.Buckets[i] = len(h.buckets)
		for _, m := range b.merchants {
			if slices.Contains(h.buckets, slotOf(tag(m.bucket))) {
				all.Merchants[i]++
			}
		}
	}
	return all
}

// moves are buckets that went to another server while merchants charged.
type moves struct {
	Buckets int           `json:"buckets"`
	Slots   int           `json:"slots"`
	Keys    int64         `json:"keys"`
	Took    time.Duration `json:"tookNanoseconds"`
	During  checked       `json:"during"` // what callers saw
	After   checked       `json:"after"`
}

// even moves buckets until no primary has more than one more than another, while every merchant charges, reads and cancels.
func (b *bench) even(ctx context.Context) (m moves) {
	moved := make(chan error, 1)
	go func() { moved <- fixture.Try(func() { b.cluster.moveUntilEven(ctx, &m) }) }()
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

// moveUntilEven moves the lowest bucket of the primary with most to the one with least, again and again.
func (s *side) moveUntilEven(ctx context.Context, m *moves) {
	started := time.Now()
	for {
		held := s.heldAsSeenBy(ctx, s.nodes[0])
		from, to := 0, 0
		for i, h := range held {
			if len(h.buckets) > len(held[from].buckets) {
				from = i
			}
			if len(h.buckets) < len(held[to].buckets) {
				to = i
			}
		}
		if len(held[from].buckets) < len(held[to].buckets)+2 {
			m.Took = time.Since(started)
			return
		}
		next := held[from].buckets[0]
		count := 1 + slices.Index(held[from].slots, next) // redis-cli moves the lowest slots first
		m.Buckets, m.Slots = m.Buckets+1, m.Slots+count
		m.Keys += fixture.Must(s.nodes[from].ClusterCountKeysInSlot(ctx, next).Result())
		s.redisCLI(ctx, "--cluster", "reshard", s.nodes[from].Addr(), "--cluster-from", clusterID(ctx, s.nodes[from]),
			"--cluster-to", clusterID(ctx, s.nodes[to]), "--cluster-slots", strconv.Itoa(count), "--cluster-yes")
	}
}

func clusterID(ctx context.Context, node *fixture.Redis) string {
	return fixture.Must(node.Do(ctx, "CLUSTER", "MYID").Text())
}
