package redis

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/proxytest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// maxFailures are of a client that has one connection, to the old master: the first one closes it. Then a new one is dialled, which finds out
// that the Sentinel does not answer, and callers do not wait for so long.
const maxFailures = 10

// A node dies, with the master and the Sentinel that both clients ask. The other Sentinels elect a new master, and the clients find it.
func TestClient_SentinelDiesWithMaster(t *testing.T) {
	for name, frozen := range map[string]bool{"processes frozen": true, "packets lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t)
			toMaster := proxytest.NewBalancer(t, master.Addr())
			host, port, err := net.SplitHostPort(toMaster.Address)
			if err != nil {
				t.Fatal(err)
			}
			replicas := []*redistest.Server{redistest.Start(t, "--replicaof", host+" "+port), redistest.Start(t, "--replicaof", host+" "+port)}
			var sentinels []*redistest.Server
			for range 3 {
				sentinels = append(sentinels, redistest.StartSentinel(t, "sentinel monitor pay "+host+" "+port+" 2",
					"sentinel down-after-milliseconds pay 1000", "sentinel failover-timeout pay 10000"))
			}
			for _, sentinel := range sentinels {
				asked := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
				defer func() { _ = asked.Close() }()
				await.Until(t, time.Minute, "a Sentinel knows the replicas and the other Sentinels", func() bool {
					return len(asked.Replicas(t.Context(), "pay").Val()) == len(replicas) && len(asked.Sentinels(t.Context(), "pay").Val()) == len(sentinels)-1
				})
			}
			// The clients know one Sentinel, so they begin with it, and learn of the others there.
			toSentinel := proxytest.NewBalancer(t, sentinels[0].Addr())
			c, err := Open(Options{URL: "redis+sentinel://" + toSentinel.Address + "/0?master_name=pay", Replicas: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			writes := map[string]func() error{
				"plain": func() error { return c.Process(t.Context(), redis.NewCmd(t.Context(), "SET", "k", "v")) },
				"replicated": func() error {
					return c.replicas.process(t.Context(), redis.NewCmd(t.Context(), "SET", "k", "v"), "k")
				},
			}
			for name, write := range writes {
				await.Until(t, time.Minute, name+" writes", func() bool { return write() == nil })
			}

			// As after half an hour, when the clients have closed their idle connections to the Sentinel.
			direct := redis.NewClient(&redis.Options{Addr: sentinels[0].Addr()})
			defer func() { _ = direct.Close() }()
			if err := direct.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err(); err != nil {
				t.Fatal(err)
			}
			if frozen {
				master.Pause()
				sentinels[0].Pause()
			} else {
				toMaster.Drop(t)
				toSentinel.Drop(t)
			}
			asked := redis.NewSentinelClient(&redis.Options{Addr: sentinels[1].Addr()})
			defer func() { _ = asked.Close() }()
			await.Until(t, time.Minute, "there is a new master", func() bool {
				address := asked.GetMasterAddrByName(t.Context(), "pay").Val()
				return len(address) == 2 && net.JoinHostPort(address[0], address[1]) != toMaster.Address
			})
			for name, write := range writes {
				var errs []error
				for err := write(); err != nil; err = write() {
					if errs = append(errs, err); len(errs) == maxFailures {
						t.Errorf("%s: %d writes failed after there was a new master: %v", name, len(errs), errors.Join(errs...))
						break
					}
				}
				t.Logf("%s: %d writes failed", name, len(errs))
			}
		})
	}
}
