package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

var incr = redis.NewScript("incr", "local key = unpack(KEYS)\n\nreturn redis.call('INCR', key)", nil, nil)

// newIncr returns the call that counts this key up.
func newIncr(key string) *redis.Call {
	call := redis.NewCall(incr)
	call.Key("key", redis.Keyspace(key), "")
	return &call
}

// cluster is a Redis Cluster of three primaries, and a client of it.
type cluster struct {
	*redis.Client

	servers []*redistest.Server
}

func startCluster(t *testing.T) cluster {
	t.Helper()
	servers := storetest.StartCluster(t)
	client, err := redis.Open(redis.Options{URL: "redis+cluster://" + servers[0].Addr(), Timeout: storetest.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return cluster{client, servers}
}

// add counts a key up, and returns its new value.
func (c cluster) add(t *testing.T, key string) int64 {
	t.Helper()
	reply, err := c.Run(t.Context(), newIncr(key))
	if err != nil {
		t.Errorf("add to %s: %v", key, err)
	}
	return reply.Int()
}

// keysOn returns that many keys of each server.
func (c cluster) keysOn(t *testing.T, each int) [][]string {
	t.Helper()
	keys := make([][]string, len(c.servers))
	inspect := storetest.Inspect(t, c.servers[0])
	for i := 0; len(keys[0]) < each || len(keys[1]) < each || len(keys[2]) < each; i++ {
		key := fmt.Sprintf("{k%d}:count", i)
		slot := int(inspect.ClusterKeySlot(t.Context(), key).Val())
		if owner := slot * len(c.servers) / storetest.Slots; len(keys[owner]) < each {
			keys[owner] = append(keys[owner], key)
		}
	}
	return keys
}

// What is promised of silent servers, ten times as long as with the default timeout: a busy machine may let a goroutine wait for a second.
const silentTimeout, silentAnsweredWithin = 3 * time.Second, 10 * time.Second

// A silent primary has its own callers answered in time, and does not delay those of the others.
func TestClusterPipelines_SilentPrimary(t *testing.T) {
	servers := storetest.StartCluster(t)
	const timeout, answeredWithin = silentTimeout, silentAnsweredWithin
	opened, err := redis.Open(redis.Options{URL: "redis+cluster://" + servers[0].Addr(), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	c := cluster{opened, servers}
	keys := c.keysOn(t, 1)
	for _, of := range keys {
		c.add(t, of[0])
	}
	servers[0].Pause()
	defer servers[0].Resume()
	var calling sync.WaitGroup
	var mu sync.Mutex
	var longest time.Duration
	for range 1200 {
		calling.Go(func() {
			start := time.Now()
			if _, err := c.Run(t.Context(), newIncr(keys[0][0])); !errors.Is(err, redis.ErrUnavailable) {
				t.Errorf("a silent server: %v, want ErrUnavailable", err)
			}
			took := time.Since(start)
			mu.Lock()
			longest = max(longest, took)
			mu.Unlock()
		})
	}
	c.add(t, keys[1][0])
	calling.Wait()
	if longest > answeredWithin {
		t.Errorf("the longest wait was %s, want at most %s", longest, answeredWithin)
	}
}

// Before the first answer the client does not know the slots, and asks the servers one after the other.
func TestClusterPipelines_SilentFromTheStart(t *testing.T) {
	servers := storetest.StartCluster(t)
	const timeout, answeredWithin = silentTimeout, silentAnsweredWithin
	opened, err := redis.Open(redis.Options{
		URL:     "redis+cluster://" + servers[0].Addr() + "?addr=" + servers[1].Addr() + "&addr=" + servers[2].Addr(),
		Timeout: timeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	for _, server := range servers {
		server.Pause()
		t.Cleanup(server.Resume)
	}
	start := time.Now()
	if _, err := opened.Run(t.Context(), newIncr("{b00a}:count")); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("silent servers: %v, want ErrUnavailable", err)
	}
	if took := time.Since(start); took > answeredWithin {
		t.Errorf("the answer took %s, want at most %s", took, answeredWithin)
	}
}

func number(t *testing.T, server *redistest.Server, name string) (value int64) {
	t.Helper()
	info := storetest.Inspect(t, server).InfoMap(t.Context(), "stats").Val()
	if _, err := fmt.Sscan(info["Stats"][name], &value); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

func TestClusterPipelines_Batches(t *testing.T) {
	c := startCluster(t)
	const callers = 40
	keys := c.keysOn(t, 1)
	for _, of := range keys {
		c.add(t, of[0])
	}
	slow, other := c.servers[0], keys[1][0]
	before := number(t, slow, "total_reads_processed")
	slow.Pause()
	var calling sync.WaitGroup
	var sum atomic.Int64
	for range callers {
		calling.Go(func() { sum.Add(c.add(t, keys[0][0])) })
	}
	for want := range int64(callers) { // each needs an answer, and none waits for the slow server
		if got := c.add(t, other); got != want+2 {
			t.Fatalf("the other server counts %d, want %d", got, want+2)
		}
	}
	await.Until(t, storetest.Timeout, "all wait", func() bool { return redis.Callers(c.Client, slow.Addr()) == callers })
	slow.Resume()
	calling.Wait()
	if want := int64(callers*(callers+3)) / 2; sum.Load() != want {
		t.Errorf("the answers add up to %d, want %d: each is 2 to %d", sum.Load(), want, callers+1)
	}
	// Beside the two batches there are those of this test's questions, and of the servers to each other.
	if reads := number(t, slow, "total_reads_processed") - before; reads > callers/2 {
		t.Errorf("%d commands took %d reads of Redis", callers, reads)
	}
}

// While a slot moves, its keys are on either server; the old one sends callers on, and then the cluster does.
func TestClusterPipelines_SlotMoves(t *testing.T) {
	c := startCluster(t)
	key := c.keysOn(t, 1)[0][0]
	from, to := storetest.Inspect(t, c.servers[0]), storetest.Inspect(t, c.servers[1])
	slot := int(from.ClusterKeySlot(t.Context(), key).Val())
	id := func(server *goredis.Client) string { return server.Do(t.Context(), "CLUSTER", "MYID").Val().(string) }
	set := func(server *goredis.Client, args ...any) {
		t.Helper()
		if err := server.Do(t.Context(), append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const callers = 20
	together := func() {
		var calling sync.WaitGroup
		for range callers {
			calling.Go(func() { c.add(t, key) })
		}
		calling.Wait()
	}
	set(to, "IMPORTING", id(from))
	set(from, "MIGRATING", id(to))
	together() // ASK
	set(to, "NODE", id(to))
	set(from, "NODE", id(to))
	together() // MOVED
	if got := c.add(t, key); got != 2*callers+1 {
		t.Errorf("counted to %d, want %d", got, 2*callers+1)
	}
}

// While a slot moves, work with several of its keys waits for the last one. That says nothing about the other slots of the server.
func TestCluster_TryAgain(t *testing.T) {
	c := startCluster(t)
	key := c.keysOn(t, 1)[0][0]
	c.add(t, key)
	from, to := storetest.Inspect(t, c.servers[0]), storetest.Inspect(t, c.servers[1])
	slot := from.ClusterKeySlot(t.Context(), key).Val()
	if err := from.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ClusterMyID(t.Context()).Val()).Err(); err != nil {
		t.Fatal(err)
	}
	both := redis.NewScript("both", "local key, moved_key = unpack(KEYS)\n\nreturn redis.call('EXISTS', key, moved_key)", nil, nil)
	call := redis.NewCall(both)
	call.Key("key", redis.Keyspace(key), "")
	call.Key("moved_key", redis.Keyspace(key), ":moved")
	_, err := c.Run(t.Context(), &call)
	if !errors.Is(err, redis.ErrUnavailable) || !strings.Contains(err.Error(), "TRYAGAIN") || redis.ServesNobody(err) {
		t.Errorf("got %v, serves nobody: %t; want an ErrUnavailable of this work alone", err, redis.ServesNobody(err))
	}
}
