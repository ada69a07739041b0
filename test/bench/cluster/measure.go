package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
)

// The names of the requests in the JSON and the ratios.
const (
	create     = "create_idempotent"
	replay     = "replay"
	read       = "read"
	publicRead = "public"
)

var kinds = [...]string{create, replay, read, publicRead}

// sample is one measurement.
type sample struct {
	fixture.Sample

	Scripts   []float64 `json:"scriptsOfEachServer"`
	NodeCPU   []float64 `json:"cpuMicrosOfEachServer"`
	Redirects float64   `json:"redirects"` // MOVED, ASK and TRYAGAIN
}

// measure measures one kind of request, for random merchants.
func (s *side) measure(ctx context.Context, kind string, round, connections int, length time.Duration) sample {
	schedule := load.Schedule{Connections: connections, WarmUp: 250 * time.Millisecond, Duration: length}
	base, used := s.Measure(ctx, s.target(kind, round, connections), schedule, s.nodes...)
	measured := sample{Sample: base, Redirects: used.AllRedis().Redirects}
	for _, node := range used.Redis {
		measured.NodeCPU = append(measured.NodeCPU, fixture.Micros(node.CPU))
		measured.Scripts = append(measured.Scripts, node.Scripts)
	}
	return measured
}

// onceMark is replaced by a number that is different in each create.
const onceMark = "00000000000000000000"

// target sends one kind of request for random merchants. Their first sessions are replayed and read.
func (s *side) target(kind string, round, connections int) load.Target {
	requests := make([][]byte, len(s.first.orders))
	for i, o := range s.first.orders {
		requests[i] = map[string]load.Request{
			create: o.request(onceMark), replay: o.request(o.once),
			read: fixture.ReadSession(o.merchant.key, s.first.sessions[i]), publicRead: fixture.PublicSession(s.first.sessions[i]),
		}[kind].Bytes()
	}
	dice := make([]*rand.Rand, connections)
	for i := range dice {
		dice[i] = rand.New(rand.NewPCG(uint64(round), uint64(i))) // the same merchants in every run
	}
	status := http.StatusOK
	if kind == create || kind == replay {
		status = http.StatusCreated
	}
	return load.Target{Name: kind + " on " + s.name, Status: status, Next: func(connection, n int, before []byte) []byte {
		before = append(before[:0], requests[dice[connection].IntN(len(requests))]...)
		if at := bytes.Index(before, []byte(onceMark)); at >= 0 {
			copy(before[at:], fmt.Appendf(nil, "%04d%06d%010d", round, connection, n))
		}
		return before
	}}
}

// memory is the memory use of a server.
type memory struct {
	Records map[string]record `json:"records"`
	// BytesPerCharge is the server's memory divided by the number of sessions. It includes Idempotency-Keys, the expiry queue, the
	// events of cancelled sessions, and the tables of Redis.
	BytesPerCharge float64 `json:"bytesPerCharge"`
}

// record is a kind of key.
type record struct {
	Keys  int     `json:"keys"`
	Bytes float64 `json:"bytes"` // the mean of MEMORY USAGE
}

// roomyHashes is the setting of the largest value in a compact hash (default 64 bytes).
const roomyHashes = "hash-max-listpack-value"

// measureRoomyMemory empties the single server, and measures the same records with larger compact hashes.
func (b *bench) measureRoomyMemory(ctx context.Context) memory {
	node := b.single.nodes[0]
	fixture.Check(node.ConfigSet(ctx, roomyHashes, "512").Err())
	fixture.Check(node.FlushAll(ctx).Err())
	empty := usedMemory(ctx, node)
	if c := b.check(ctx, b.single, b.merchants, "roomy"); c.Wrong > 0 {
		fixture.Check(fmt.Errorf("%d responses were wrong with %s: %q", c.Wrong, roomyHashes, c.Examples))
	}
	return measureMemory(ctx, node, empty)
}

func usedMemory(ctx context.Context, node *fixture.Redis) int64 {
	return node.Number(ctx, "Memory", "used_memory")
}

// measureMemory measures the mean size of each kind of key, and the memory since the server was empty. The kind is the second part of
// a key such as `{b07n}:session:ps_...`. An index has one key for a bucket.
func measureMemory(ctx context.Context, node *fixture.Redis, empty int64) memory {
	const few = 300 // of each kind are enough
	m := memory{Records: map[string]record{}}
	keys := map[string][]string{}
	scan := node.Scan(ctx, 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		if parts := strings.SplitN(scan.Val(), ":", 3); len(parts) > 1 {
			keys[parts[1]] = append(keys[parts[1]], scan.Val())
		}
	}
	fixture.Check(scan.Err())
	for kind, all := range keys {
		sum, counted := int64(0), 0
		for _, key := range all[:min(few, len(all))] {
			size, err := node.MemoryUsage(ctx, key, 0).Result()
			if errors.Is(err, redis.Nil) {
				continue // it has expired
			}
			fixture.Check(err)
			sum += size
			counted++
		}
		if counted > 0 {
			m.Records[kind] = record{len(all), float64(sum) / float64(counted)}
		}
	}
	m.BytesPerCharge = float64(usedMemory(ctx, node)-empty) / float64(max(m.Records["session"].Keys, 1))
	return m
}
