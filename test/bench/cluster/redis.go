package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// primaries of the cluster.
const primaries = 3

// node is a redis-server.
type node struct {
	server *redistest.Server
	client *redis.Client
	pid    int
}

func newNode(ctx context.Context, extraArgs ...string) (n *node, stop func() error, err error) {
	server, stopServer, err := redistest.New(extraArgs...) //nolint:contextcheck // stopped by its own function
	if err != nil {
		return nil, nil, err
	}
	n = &node{server: server, client: redis.NewClient(&redis.Options{
		Addr: server.Addr(), Protocol: 2, ReadTimeout: process.Patience, WriteTimeout: process.Patience,
	})}
	stop = func() error {
		err := n.client.Close()
		stopServer()
		return err
	}
	pid, err := n.fact(ctx, "server", "process_id")
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	n.pid = int(pid)
	return n, stop, nil
}

// facts are the lines of a section of INFO that begin with a word.
func (n *node) facts(ctx context.Context, section, word string) (map[string]string, error) {
	text, err := n.client.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); strings.HasPrefix(name, word) {
			found[name] = value
		}
	}
	return found, nil
}

// fact is a number of INFO.
func (n *node) fact(ctx context.Context, section, name string) (int64, error) {
	found, err := n.facts(ctx, section, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(found[name], 10, 64)
}

// count adds up a number of the lines of a section of INFO such as `errorstat_MOVED:count=3`.
func (n *node) count(ctx context.Context, section, field string, names ...string) (int64, error) {
	var sum int64
	for _, name := range names {
		found, err := n.facts(ctx, section, name)
		if err != nil {
			return 0, err
		}
		for pair := range strings.SplitSeq(found[name], ",") {
			if key, value, _ := strings.Cut(pair, "="); key == field {
				number, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					return 0, fmt.Errorf("not a statistic: %s", found[name])
				}
				sum += number
			}
		}
	}
	return sum, nil
}

// joinCluster makes a cluster of nodes as redis-cli does it if nothing else is said.
func joinCluster(ctx context.Context, nodes []*node) error {
	args := []string{"--cluster", "create"}
	for _, n := range nodes {
		args = append(args, n.server.Addr())
	}
	if err := redisCLI(ctx, append(args, "--cluster-yes")...); err != nil {
		return err
	}
	return settled(ctx, nodes)
}

// settled waits until all nodes agree on who has which slots.
func settled(ctx context.Context, nodes []*node) error {
	return process.Eventually(ctx, func() error {
		var agreed string
		for i, n := range nodes {
			state, err := n.client.ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(state, "cluster_state:ok") {
				return fmt.Errorf("the cluster is not complete for %s: %w", n.server.Addr(), err)
			}
			owners, err := n.owners(ctx)
			if err != nil {
				return err
			}
			if i > 0 && owners != agreed {
				return errors.New("the servers do not agree on who has which slots")
			}
			agreed = owners
		}
		return nil
	})
}

// owners says, as this node knows it, who has which slots.
func (n *node) owners(ctx context.Context) (string, error) {
	parts, err := n.shards(ctx)
	if err != nil {
		return "", err
	}
	addresses := make([]string, slots)
	for address, ranges := range parts {
		for _, r := range ranges {
			for slot := r.first; slot <= r.last; slot++ {
				addresses[slot] = address
			}
		}
	}
	return strings.Join(addresses, " "), nil
}

// shards are the slots of each primary, by its address.
func (n *node) shards(ctx context.Context) (map[string][]slotRange, error) {
	all, err := n.client.ClusterShards(ctx).Result()
	if err != nil {
		return nil, err
	}
	parts := map[string][]slotRange{}
	for _, shard := range all {
		for _, server := range shard.Nodes {
			address := net.JoinHostPort(server.IP, strconv.FormatInt(server.Port, 10))
			for _, r := range shard.Slots {
				parts[address] = append(parts[address], slotRange{int(r.Start), int(r.End)})
			}
		}
	}
	return parts, nil
}

// redisCLI runs redis-cli, or the one that is beside another server, and returns what it said if it failed.
func redisCLI(ctx context.Context, args ...string) error {
	server, err := redistest.Binary()
	if err != nil {
		return err
	}
	cli := filepath.Join(filepath.Dir(server), strings.Replace(filepath.Base(server), "-server", "-cli", 1))
	ctx, cancel := context.WithTimeout(ctx, process.Patience)
	defer cancel()
	command := exec.CommandContext(ctx, cli, args...)
	command.WaitDelay = time.Second
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", cli, strings.Join(args, " "), err, said)
	}
	return nil
}

// clusterURL is the form that apiserver/store/link takes.
func clusterURL(nodes []*node) string {
	others := url.Values{}
	for _, n := range nodes[1:] {
		others.Add("addr", n.server.Addr())
	}
	return (&url.URL{Scheme: "redis+cluster", Host: nodes[0].server.Addr(), RawQuery: others.Encode()}).String()
}

// moveSlots has redis-cli move slots, the lowest first, with all that is in them.
func moveSlots(ctx context.Context, from, to *node, count int) error {
	fromID, err := from.client.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return err
	}
	toID, err := to.client.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return err
	}
	return redisCLI(ctx, "--cluster", "reshard", from.server.Addr(), "--cluster-from", fromID, "--cluster-to", toID,
		"--cluster-slots", strconv.Itoa(count), "--cluster-yes")
}
