package redis

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// leastPrimaries is how many primaries a Redis Cluster has at least. They share the processors as connections to one server do.
const leastPrimaries = 3

// clusterPipelines are those to the primaries of a Redis Cluster, one to each. What goes to one primary travels together, and
// a primary that is slow or gone does not delay callers of the others.
type clusterPipelines struct {
	client  *redis.ClusterClient
	timeout time.Duration

	// found: the client knows the slots. Before that it asks the servers one after the other.
	found     atomic.Bool
	mu        sync.RWMutex
	pipelines map[string]*pipeline // by address
}

func newClusterPipelines(client *redis.ClusterClient, timeout time.Duration) *clusterPipelines {
	return &clusterPipelines{client: client, timeout: timeout, pipelines: map[string]*pipeline{}}
}

// process sends a command to the primary of its first key, and waits for its answer. If that primary says that it ran nothing, the
// client asks again, alone, and follows the slot. That is rare: it happens while slots move, and until the client knows where to.
func (c *clusterPipelines) process(ctx context.Context, command sentOnce) error {
	primary, err := c.primary(ctx, firstKey(command.Args()))
	if err != nil {
		return err
	}
	err = c.pipelineTo(primary).process(ctx, command)
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case ranElsewhere(err):
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		return c.client.Process(ctx, command)
	case !isAnswer(err):
		c.client.ReloadState(ctx) // for the next one: another server may be the primary by now
	}
	return err
}

// primary returns the server of a key.
func (c *clusterPipelines) primary(ctx context.Context, key string) (*redis.Client, error) {
	if c.found.Load() {
		return c.client.MasterForKey(ctx, key)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	primary, err := c.client.MasterForKey(ctx, key)
	c.found.Store(err == nil)
	return primary, err
}

// address returns that of the server of a key; empty: it is not known yet.
func (c *clusterPipelines) address(ctx context.Context, key string) string {
	if !c.found.Load() {
		return ""
	}
	primary, err := c.client.MasterForKey(ctx, key)
	if err != nil {
		return ""
	}
	return primary.Options().Addr
}

// pipelineTo returns the one to a primary. The client makes another connection pool for a server that left and came back.
func (c *clusterPipelines) pipelineTo(primary *redis.Client) *pipeline {
	address := primary.Options().Addr
	c.mu.RLock()
	found := c.pipelines[address]
	c.mu.RUnlock()
	if found != nil && found.client == primary {
		return found
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found = c.pipelines[address]; found == nil || found.client != primary {
		found = newPipeline(primary, c.timeout, max(1, runtime.GOMAXPROCS(0)/leastPrimaries))
		c.pipelines[address] = found
	}
	return found
}

// firstKey returns the key of a command "evalsha <digest> <number of keys> <key> ...", which may be a pointer.
func firstKey(words []any) string {
	switch key := words[firstKeyPos].(type) {
	case string:
		return key
	case *string:
		return *key
	}
	return ""
}

// ranElsewhere reports whether a server of a Redis Cluster rejects a command because another one has to run it.
func ranElsewhere(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "READONLY") ||
		errors.Is(err, redis.ErrClosed)
}
