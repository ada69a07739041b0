package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// record is one kind of what Redis keeps.
type record struct {
	Keys int `json:"keys"`
	// Bytes is the mean of MEMORY USAGE.
	Bytes float64 `json:"bytes"`
}

// memory is what a server keeps.
type memory struct {
	Records map[string]record `json:"records"`
	// BytesPerCharge is all that the server took, for each session: the session, its Idempotency-Key if it has one, its place among those
	// that expire, the event of every one that was cancelled, and the tables of Redis.
	BytesPerCharge float64 `json:"bytesPerCharge"`
}

// roomyHashes is a setting of Redis: hashes with values up to so many bytes stay in their compact form, 64 if nothing is said.
const roomyHashes = "hash-max-listpack-value"

// weighRoomy weighs the same records on a server that is told to keep them compact. It empties the server for it.
func (s *side) weighRoomy(ctx context.Context, merchants []merchant) (memory, error) {
	n := s.nodes[0]
	if err := errors.Join(n.client.ConfigSet(ctx, roomyHashes, "512").Err(), n.client.FlushAll(ctx).Err()); err != nil {
		return memory{}, err
	}
	empty, err := n.fact(ctx, "memory", "used_memory")
	if err != nil {
		return memory{}, err
	}
	if v := s.caller.check(ctx, merchants, "roomy"); v.Wrong > 0 {
		return memory{}, fmt.Errorf("%d answers were wrong with %s: %q", v.Wrong, roomyHashes, v.Examples)
	}
	return n.weighAll(ctx, empty)
}

// weighAll takes how much the server had used when it was empty.
func (n *node) weighAll(ctx context.Context, empty int64) (memory, error) {
	records, err := n.weigh(ctx)
	if err != nil {
		return memory{}, err
	}
	used, err := n.fact(ctx, "memory", "used_memory")
	return memory{records, float64(used-empty) / float64(max(records["session"].Keys, 1))}, err
}

// weigh asks a server for the memory of each kind of key. The kind is the word behind the hash tag, of keys such as `{b07}:session:ps_07...`.
// Indexes have one key for a bucket, whose memory is of all in it.
func (n *node) weigh(ctx context.Context) (map[string]record, error) {
	const few = 300 // of each kind are enough: they are alike
	keys := map[string][]string{}
	for scan := n.client.Scan(ctx, 0, "*", 1000).Iterator(); scan.Next(ctx); {
		if parts := strings.SplitN(scan.Val(), ":", 3); len(parts) > 1 {
			keys[parts[1]] = append(keys[parts[1]], scan.Val())
		}
	}
	records := map[string]record{}
	for kind, all := range keys {
		some := all[:min(few, len(all))]
		sum, counted := int64(0), 0
		for _, key := range some {
			bytes, err := n.client.MemoryUsage(ctx, key, 0).Result()
			switch {
			case errors.Is(err, redis.Nil): // its time is over
			case err != nil:
				return nil, err
			default:
				sum += bytes
				counted++
			}
		}
		if counted > 0 {
			records[kind] = record{len(all), float64(sum) / float64(counted)}
		}
	}
	return records, ctx.Err()
}
