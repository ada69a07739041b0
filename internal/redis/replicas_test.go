package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// Redis puts no brackets around the IPv6 address of a redirection, and the client puts them around those of servers.
func TestRunReplicated_Redirected(t *testing.T) {
	for name, args := range map[string][]string{
		"IPv4": nil,
		"IPv6": {"--bind", "127.0.0.1 ::1", "--cluster-announce-ip", "::1"},
	} {
		t.Run(name, func(t *testing.T) {
			servers := storetest.StartCluster(t, args...)
			client := storetest.Client(t, "redis+cluster://"+servers[0].Addr(), func(o *redis.Options) {
				o.Replicas, o.ReplicaTimeout = 1, time.Millisecond // there is none: what matters is which server runs the script
			})
			const key = "{k}:count"
			run := func() error {
				_, err := client.RunReplicated(t.Context(), newIncr(key))
				return err
			}
			_ = run() // the client knows the slots
			slot := int(storetest.Inspect(t, servers[0]).ClusterKeySlot(t.Context(), key).Val())
			at := slot * len(servers) / storetest.Slots
			from, to := storetest.Inspect(t, servers[at]), storetest.Inspect(t, servers[(at+1)%len(servers)])
			if n := from.Del(t.Context(), key).Val(); n != 1 {
				t.Fatal("the first owner of the slot did not run the script")
			}
			for _, server := range []*goredis.Client{to, from} {
				if err := server.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", to.ClusterMyID(t.Context()).Val()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			err := run()
			if got := to.Get(t.Context(), key).Val(); got != "1" {
				t.Errorf("the new owner of the slot counts %q, want 1: %v", got, err)
			}
		})
	}
}
