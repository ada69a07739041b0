package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const noEviction = "noeviction"

// Health says how Redis is.
type Health struct {
	// Err is nil if every server answers and keeps what it is given; else ErrUnavailable, or ErrEviction if one says that it may evict keys.
	Err error
	// Servers are those that take writes, by address, with the error of each: the primaries of a Redis Cluster, or one.
	Servers map[string]error
}

// Serves reports whether Redis serves anybody, and evicts nothing as far as it says.
func (h Health) Serves() bool {
	if errors.Is(h.Err, ErrEviction) {
		return false
	}
	for _, err := range h.Servers {
		if err == nil {
			return true
		}
	}
	return false
}

// Check reports whether Redis answers and keeps what it is given; see Health.
func (c *Client) Check(ctx context.Context) error { return c.Health(ctx).Err }

// Health asks every server. One that hides its policy passes: see EvictionPolicy. Each server has the whole timeout: finding the primaries of
// a Redis Cluster may have waited for one that is gone.
func (c *Client) Health(ctx context.Context) Health {
	const steps = 3 // asking a server that is gone for the primaries, another one, and the primaries
	ctx, cancel := context.WithTimeout(ctx, steps*c.timeout)
	defer cancel()
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		err := checkEviction(evictionPolicy(ctx, c.client))
		return Health{Err: err, Servers: map[string]error{c.address: err}}
	}
	var mu sync.Mutex
	health := Health{Servers: map[string]error{}}
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		err := checkEviction(evictionPolicy(ctx, server))
		mu.Lock()
		defer mu.Unlock()
		health.Servers[server.Options().Addr] = err
		if err != nil {
			health.Err = errors.Join(health.Err, fmt.Errorf("%s: %w", server.Options().Addr, err))
		}
		return nil
	})
	if err != nil {
		health.Err = errors.Join(health.Err, failure(err))
	}
	return health
}

func checkEviction(policy string, err error) error {
	if err == nil && policy != "" && policy != noEviction {
		return ErrEviction
	}
	return err
}

// EvictionPolicy returns the maxmemory-policy of Redis, of a Redis Cluster that of a server which
// may evict if there is one. It is empty when Redis hides it, as some managed services do.
// The error is ErrUnavailable.
func (c *Client) EvictionPolicy(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		return evictionPolicy(ctx, c.client)
	}
	var mu sync.Mutex
	var policy string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		found, err := evictionPolicy(ctx, server)
		mu.Lock()
		defer mu.Unlock()
		if policy == "" || policy == noEviction {
			policy = found
		}
		return err
	})
	if err != nil && !errors.Is(err, ErrUnavailable) {
		err = failure(err)
	}
	return policy, err
}

// evictionPolicy asks with INFO, which is permitted in more places than CONFIG is.
func evictionPolicy(ctx context.Context, server redis.Cmdable) (string, error) {
	info, err := server.Info(ctx, "memory").Result()
	if isAnswer(err) {
		// Not every server lets everyone ask. Then the question is whether it serves at all.
		err = server.Ping(ctx).Err()
	}
	if err != nil {
		return "", failure(err)
	}
	policy, _ := infoField(info, "maxmemory_policy")
	return policy, nil
}

// infoField returns a field of what INFO answered.
func infoField(info, name string) (value string, found bool) {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// awaitInterval is how often a Redis that does not answer is asked again.
const awaitInterval = 500 * time.Millisecond

// Await returns when Redis has answered once, or ctx ends. Until then a replica is not ready: with a
// wrong address, or a policy that keeps it from Redis, it would never serve anybody, and a rollout of such
// replicas must not go on. Later outages are everybody's, and do not count; nor do those of some primaries of a Redis Cluster.
//
// The error is that Redis may evict what it must keep: without an override, a dead key would come
// back to life, and without its record, an event would be lost.
func (c *Client) Await(ctx context.Context, log *slog.Logger) error {
	for logged := false; ctx.Err() == nil; logged = true {
		health := c.Health(ctx)
		switch {
		case errors.Is(health.Err, ErrEviction):
			return fmt.Errorf("check Redis: %w, for it may drop sessions, events and revocations; set it and start again", health.Err)
		case health.Serves():
			if health.Err != nil {
				log.Error("some servers of Redis do not answer; merchants of the others are served", "error", health.Err)
			}
			c.checkReplicas(ctx, log)
			return nil
		case !logged:
			log.Error("Redis does not answer; this replica is not ready until it does", "error", health.Err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(awaitInterval):
		}
	}
	return nil
}
