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

// The kinds of requests, as the JSON and the ratios name them.
const (
	create     = "create_idempotent"
	replay     = "replay"
	read       = "read"
	publicRead = "public"
)

var kinds = [...]string{create, replay, read, publicRead}

// connections are how many clients ask at once.
const connections = 64

// sample is one measurement.
type sample struct {
	fixture.Sample

	RedisCPU  float64   `json:"redisCPUMicrosPerRequest"` // of all servers together
	Scripts   []float64 `json:"scriptsOfEachServer"`
	NodeCPU   []float64 `json:"cpuMicrosOfEachServer"`
	Redirects float64   `json:"redirects"` // MOVED, ASK and TRYAGAIN that the servers gave
}

// measure asks one kind of request of random merchants for a while.
func (s *side) measure(ctx context.Context, kind string, round int, length time.Duration) sample {
	schedule := load.Schedule{Connections: connections, WarmUp: 250 * time.Millisecond, Duration: length}
	base, used := s.Measure(ctx, s.target(kind, round), schedule, s.nodes...)
	all := used.AllRedis()
	measured := sample{Sample: base, RedisCPU: fixture.Micros(all.CPU) / base.Answered, Redirects: all.Redirects}
	for _, node := range used.Redis {
		measured.NodeCPU = append(measured.NodeCPU, fixture.Micros(node.CPU))
		measured.Scripts = append(measured.Scripts, node.Scripts)
	}
	return measured
}

// onceMark is where each create has a number of its own.
const onceMark = "00000000000000000000"

// target asks one kind of random merchants. The first charges are what is replayed and read.
func (s *side) target(kind string, round int) load.Target {
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

// memory is what a server keeps.
type memory struct {
	Records map[string]record `json:"records"`
	// BytesPerCharge is all that the server took, for each session: the session, its Idempotency-Key if it has one, its place among those
	// that expire, the event of every one that was cancelled, and the tables of Redis.
	BytesPerCharge float64 `json:"bytesPerCharge"`
}

// record is one kind of what Redis keeps.
type record struct {
	Keys  int     `json:"keys"`
	Bytes float64 `json:"bytes"` // the mean of MEMORY USAGE
}

// roomyHashes is a setting of Redis: hashes with values up to so many bytes stay in their compact form, 64 if nothing is said.
const roomyHashes = "hash-max-listpack-value"

// measureRoomyMemory measures the same records on a server that keeps them compact. It empties the server for it.
func (b *bench) measureRoomyMemory(ctx context.Context) memory {
	node := b.single.nodes[0]
	fixture.Check(node.ConfigSet(ctx, roomyHashes, "512").Err())
	fixture.Check(node.FlushAll(ctx).Err())
	empty := usedMemory(ctx, node)
	if c := b.check(ctx, b.single, b.merchants, "roomy"); c.Wrong > 0 {
		fixture.Check(fmt.Errorf("%d answers were wrong with %s: %q", c.Wrong, roomyHashes, c.Examples))
	}
	return measureMemory(ctx, node, empty)
}

func usedMemory(ctx context.Context, node *fixture.Redis) int64 {
	return node.Number(ctx, "Memory", "used_memory")
}

// measureMemory takes how much the server had used when it was empty, and asks for the memory of each kind of key. The kind is the word
// behind the hash tag, of keys such as `{b07}:session:ps_07...`. Indexes have one key for a bucket, whose memory is of all in it.
func measureMemory(ctx context.Context, node *fixture.Redis, empty int64) memory {
	const few = 300 // of each kind are enough: they are alike
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
