package redis_test

import (
	"fmt"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// heard is a Subscriber that remembers.
type heard struct {
	t        *testing.T
	mu       sync.Mutex
	active   map[session.Bucket]int // how often it was subscribed, while it is
	messages map[string]int         // "<bucket> <message>"
	lost     int
}

func subscribe(t *testing.T, client *redis.Client) (*heard, *redis.Subscription) {
	t.Helper()
	h := &heard{t: t, active: map[session.Bucket]int{}, messages: map[string]int{}}
	subscription := client.Subscribe("ended", h)
	t.Cleanup(subscription.Close)
	return h, subscription
}

func (h *heard) Subscribed(bucket session.Bucket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.active[bucket]++
}

func (h *heard) Received(bucket session.Bucket, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages[fmt.Sprint(bucket, " ", message)]++
}

func (h *heard) Lost(bucket session.Bucket, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.active, bucket)
	h.lost++
}

func (h *heard) awaitActive(buckets ...session.Bucket) {
	h.t.Helper()
	await.Until(h.t, storetest.Timeout, fmt.Sprint("subscribed to ", buckets), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, bucket := range buckets {
			if h.active[bucket] == 0 {
				return false
			}
		}
		return true
	})
}

func (h *heard) awaitMessage(bucket session.Bucket, message string) {
	h.t.Helper()
	await.Until(h.t, storetest.Timeout, fmt.Sprintf("%q of bucket %d has come", message, bucket), func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.messages[fmt.Sprint(bucket, " ", message)] == 1
	})
}

func TestSubscription_Messages(t *testing.T) {
	server := redistest.Start(t)
	h, subscription := subscribe(t, storetest.Client(t, server.URL()))
	c := storetest.Inspect(t, server)
	publish := func(bucket int, message string) int64 {
		return c.Publish(t.Context(), redis.BucketKeyspace(session.Bucket(bucket)).Key("ended"), message).Val()
	}
	for _, bucket := range []session.Bucket{7, 0, 63} {
		subscription.Add(bucket)
	}
	h.awaitActive(7, 0, 63)
	for _, bucket := range []int{7, 0, 63} {
		if n := publish(bucket, "one"); n != 1 {
			t.Errorf("bucket %d has %d subscribers", bucket, n)
		}
		h.awaitMessage(session.Bucket(bucket), "one")
	}
	if n := len(c.ClientList(t.Context()).Val()); n == 0 {
		t.Error("no client")
	}
	subscription.Remove(7)
	await.Until(t, storetest.Timeout, "bucket 7 has no subscriber", func() bool { return publish(7, "unheard") == 0 })
	// Removed and added in one go, the last counts.
	subscription.Remove(0)
	subscription.Add(0)
	await.Until(t, storetest.Timeout, "bucket 0 is confirmed again", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.active[0] == 2
	})
	if n := publish(0, "two"); n != 1 {
		t.Errorf("bucket 0 has %d subscribers", n)
	}
	h.awaitMessage(0, "two")
	subscription.Remove(0)
	subscription.Remove(63)
	await.Until(t, storetest.Timeout, "no connection is left", func() bool { return c.PubSubNumPat(t.Context()).Err() == nil && publish(63, "x") == 0 })
	subscription.Add(63)
	await.Until(t, storetest.Timeout, "bucket 63 is confirmed again", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.active[63] == 2
	})
}

func TestSubscription_Reconnects(t *testing.T) {
	server := redistest.Start(t)
	h, subscription := subscribe(t, storetest.Client(t, server.URL()))
	subscription.Add(7)
	h.awaitActive(7)
	server.Stop()
	await.Until(t, storetest.Timeout, "the loss is noticed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.lost > 2
	})
	subscription.Add(8) // while there is no server
	server.Start()
	h.awaitActive(7, 8)
	c := storetest.Inspect(t, server)
	for bucket := range session.Bucket(2) {
		if err := c.Publish(t.Context(), redis.BucketKeyspace(bucket+7).Key("ended"), "back").Err(); err != nil {
			t.Fatal(err)
		}
		h.awaitMessage(bucket+7, "back")
	}
}

// A cable that was pulled says nothing.
func TestSubscription_SilentServer(t *testing.T) {
	server := redistest.Start(t)
	h, subscription := subscribe(t, storetest.Client(t, server.URL()))
	subscription.Add(7)
	h.awaitActive(7)
	server.Pause()
	await.Until(t, storetest.Timeout, "the loss is noticed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.lost > 0
	})
	server.Resume()
	h.awaitActive(7)
}

func TestSubscription_MissingRight(t *testing.T) {
	server := redistest.Start(t)
	c := storetest.Inspect(t, server)
	set := func(rules ...any) {
		t.Helper()
		if err := c.Do(t.Context(), append([]any{"ACL", "SETUSER", "till", "on", ">secret", "~{b*", "+@all"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("resetchannels")
	h, subscription := subscribe(t, storetest.Client(t, "redis://till:secret@"+server.Addr()))
	subscription.Add(7)
	await.Until(t, storetest.Timeout, "the missing right is reported", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.lost > 1
	})
	set("&{b*")
	h.awaitActive(7)
}

func TestSubscription_SlotMoves(t *testing.T) {
	servers := storetest.StartCluster(t)
	h, subscription := subscribe(t, storetest.Client(t, "redis+cluster://"+servers[0].Addr()))
	var clients []*goredis.Client
	for _, server := range servers {
		clients = append(clients, storetest.Inspect(t, server))
	}
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{servers[0].Addr()}})
	t.Cleanup(func() { _ = cluster.Close() })
	sharded := clients[0].Do(t.Context(), "COMMAND", "INFO", "SPUBLISH").Val().([]any)[0] != nil
	publish := func(channel, message string) error {
		if sharded {
			return cluster.SPublish(t.Context(), channel, message).Err()
		}
		return cluster.Publish(t.Context(), channel, message).Err()
	}
	for bucket := range session.Bucket(session.Buckets) {
		subscription.Add(bucket)
	}
	for bucket := range session.Bucket(session.Buckets) {
		h.awaitActive(bucket)
		if err := publish(redis.BucketKeyspace(bucket).Key("ended"), "one"); err != nil {
			t.Fatal(err)
		}
		h.awaitMessage(bucket, "one")
	}
	if !sharded {
		return // every server passes on every message
	}
	const channel = "{b07n}:ended"
	slot := int(clients[0].ClusterKeySlot(t.Context(), channel).Val())
	from := slot * 3 / storetest.Slots
	toID := clients[(from+1)%3].Do(t.Context(), "CLUSTER", "MYID").Val()
	for i := range clients { // the new owner first
		if err := clients[(from+1+i)%3].Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", toID).Err(); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, storetest.Timeout, "bucket 7 is confirmed by its new server", func() bool {
		return clients[(from+1)%3].Do(t.Context(), "PUBSUB", "SHARDNUMSUB", channel).Val().([]any)[1] == int64(1)
	})
	h.awaitActive(7)
	await.Until(t, storetest.Timeout, "the message is sent", func() bool { return publish(channel, "moved") == nil })
	h.awaitMessage(7, "moved")
}

// oldServer is a Redis Cluster of one server from before Redis 7: it knows neither SSUBSCRIBE nor SPUBLISH.
func TestSubscription_ClusterBeforeRedis7(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes", "--rename-command", "SSUBSCRIBE", "")
	c := storetest.Inspect(t, server)
	if err := c.ClusterAddSlotsRange(t.Context(), 0, storetest.Slots-1).Err(); err != nil {
		t.Fatal(err)
	}
	h, subscription := subscribe(t, storetest.Client(t, "redis+cluster://"+server.Addr()))
	subscription.Add(7)
	h.awaitActive(7)
	if err := c.Publish(t.Context(), "{b07n}:ended", "one").Err(); err != nil {
		t.Fatal(err)
	}
	h.awaitMessage(7, "one")
}
