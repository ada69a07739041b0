package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// errNotReplicated says that a command was run, but that fewer replicas than required have acknowledged what it wrote.
var errNotReplicated = errors.New("too few replicas have acknowledged the write")

// ChooseReplicas returns the Options.Replicas that are configured. nil: 1 for a URL of Sentinels or a Redis Cluster, whose servers have replicas and
// change places with them, so that a write that was answered survives a failover; else 0.
func ChooseReplicas(configured *int, url string) int {
	if configured != nil {
		return *configured
	}
	target, err := parseURL(url)
	if err == nil && (target.MasterName != "" || target.IsClusterMode) {
		return 1
	}
	return 0
}

// replicated sends commands that count as answered when replicas have what they wrote, so that a failover does not undo it. It
// has connections of its own: one that waits for replicas does not delay others.
type replicated struct {
	client   redis.UniversalClient
	timeout  time.Duration // of a command and the wait
	replicas int
	wait     time.Duration
}

func newReplicated(target *redis.UniversalOptions, options Options) *replicated {
	timeout := options.Timeout + options.ReplicaTimeout // the wait comes after the script
	return &replicated{newClient(target, timeout, options.PoolSize), timeout, options.Replicas, options.ReplicaTimeout}
}

// checkReplicas logs each server that answers no RunReplicated: it has fewer replicas than Options.Replicas now, or the user may not wait for
// them. It decides nothing: a replica may be away for a while, and what does not wait for it is served.
func (c *Client) checkReplicas(ctx context.Context, log *slog.Logger) {
	if c.replicas == nil {
		return
	}
	check := func(ctx context.Context, server redis.UniversalClient, address string) {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		// It waits for no replica. Some servers of others know no WAIT, so only a missing right is certain to be a mistake.
		if err := server.Do(ctx, "WAIT", 0, 1).Err(); err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
			log.Error("the user of this server of Redis may not run WAIT: settlements get 503. Add +wait to its ACL, or set --settlement-replicas=0",
				"server", address)
		}
		info, err := server.Info(ctx, "replication").Result()
		connected, known := infoField(info, "connected_slaves")
		if found, invalid := strconv.Atoi(connected); err == nil && known && invalid == nil && found < c.replicas.replicas {
			log.Error("this server of Redis has too few replicas: settlements get 503. Give it replicas, or set --settlement-replicas",
				"server", address, "replicas", found, "required", c.replicas.replicas)
		}
	}
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		check(ctx, c.client, c.address)
		return
	}
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		check(ctx, server, server.Options().Addr)
		return nil
	})
}

func (r *replicated) close() error {
	if r == nil {
		return nil
	}
	return r.client.Close()
}

// process sends a command whose first key is given, and waits until enough replicas of its server have all that the server had
// written by then: also what an earlier command wrote, if this one changes nothing. It is one round trip, on a connection that is
// taken for as long as the wait. Like Client.Process it never sends again what may have been run.
func (r *replicated) process(ctx context.Context, command *redis.Cmd, key string) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return r.send(ctx, r.client, false, command)
	}
	server, err := cluster.MasterForKey(ctx, key)
	asking := false
	for range maxRedirects {
		if err != nil {
			break
		}
		err = r.send(ctx, server, asking, command)
		to, redirected := redirection(err, &asking)
		if !redirected {
			break
		}
		server, err = masterAt(ctx, cluster, to)
	}
	if err != nil && !errors.Is(err, errNotReplicated) {
		cluster.ReloadState(ctx) // for the next one: its master may be another by now
	}
	return err
}

// send needs one connection for both, as a server knows by the connection what to wait for.
func (r *replicated) send(ctx context.Context, server redis.UniversalClient, asking bool, command *redis.Cmd) error {
	batch := server.Pipeline()
	if asking {
		_ = batch.Process(ctx, redis.NewCmd(ctx, "asking")) // only collects, as for the others
	}
	_ = batch.Process(ctx, sentOnce{command})
	wait := redis.NewCmd(ctx, "wait", r.replicas, r.wait.Milliseconds())
	_ = batch.Process(ctx, wait)
	_ = exec(ctx, batch) // each command has its own error
	if err := command.Err(); err != nil {
		return err
	}
	confirmed, err := wait.Int()
	if err != nil {
		return err
	}
	if confirmed < r.replicas {
		return fmt.Errorf("%w: %d of %d", errNotReplicated, confirmed, r.replicas)
	}
	return nil
}

// redirection returns the address where a server of a Redis Cluster says a command must go; the server has run nothing. The other
// server may have to be sent ASKING first, for a slot it does not own yet.
func redirection(err error, asking *bool) (to string, redirected bool) {
	*asking = redis.HasErrorPrefix(err, "ASK")
	if !*asking && !redis.HasErrorPrefix(err, "MOVED") {
		return "", false
	}
	words := strings.Fields(err.Error())
	return bracketed(words[len(words)-1]), true
}

// bracketed returns an address as the client writes those of servers: Redis puts no brackets around the IPv6 address of a redirection.
func bracketed(address string) string {
	colon := strings.LastIndexByte(address, ':')
	if colon < 0 || strings.HasPrefix(address, "[") {
		return address
	}
	return net.JoinHostPort(address[:colon], address[colon+1:])
}

// masterAt looks for a server among those that are masters now.
func masterAt(ctx context.Context, cluster *redis.ClusterClient, address string) (*redis.Client, error) {
	found := make(chan *redis.Client, 1)
	err := cluster.ForEachMaster(ctx, func(_ context.Context, server *redis.Client) error {
		if server.Options().Addr == address {
			found <- server
		}
		return nil
	})
	select {
	case server := <-found:
		return server, nil
	default:
	}
	if err != nil {
		return nil, fmt.Errorf("look for the master at %s: %w", address, err)
	}
	return nil, fmt.Errorf("redirected to %s, which is no known master", address)
}
