package store_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func TestSettle_WaitsForReplicas(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := follow(t, master)
	s := open(t, master.URL(), copied(1, patience))
	hasty, other := open(t, master.URL(), copied(1, shortly)), open(t, master.URL(), copied(1, shortly))
	asks := merchant()
	first, second := mustCreate(t, s, asks, newSession()).Session.ID, mustCreate(t, s, asks, newSession()).Session.ID
	if got, err := s.Settle(t.Context(), first, paid("a")); err != nil || !got.Applied || got.Repeated {
		t.Fatalf("with a replica that follows: %+v, %v", got, err)
	}

	replica.Pause()
	// The second report finds all done, and changes nothing; it must not promise more for that. Nor must the one on
	// another connection.
	for _, s := range []*services{hasty, hasty, other, hasty} {
		if _, err := s.Settle(t.Context(), second, paid("b")); !errors.Is(err, redis.ErrUnavailable) {
			t.Errorf("with a replica that is frozen: %v, want ErrUnavailable", err)
		}
	}
	if _, read, err := s.Session(t.Context(), asks, second); err != nil || read.Status != session.Completed {
		t.Errorf("the report was carried out, and the session is read as %s, %v", read.Status, err)
	}
	mustCreate(t, hasty, asks, newSession()) // nothing else waits for replicas

	replica.Resume()
	if got, err := s.Settle(t.Context(), second, paid("b")); err != nil || !got.Applied || !got.Repeated {
		t.Errorf("with a replica that follows again: %+v, %v", got, err)
	}

	master.Kill()
	must(t, client(t, replica).ReplicaOf(t.Context(), "no", "one").Err())
	promoted := open(t, replica.URL())
	for ref, id := range map[string]session.ID{"a": first, "b": second} {
		if got, err := promoted.Settle(t.Context(), id, paid(ref)); err != nil || !got.Applied || !got.Repeated {
			t.Errorf("%s at the replica that took over: %+v, %v", ref, got, err)
		}
	}
}

// What is asked for is how many have confirmed, not whether some have.
func TestSettle_NumberOfReplicas(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	follow(t, master)
	wanting := open(t, master.URL(), copied(2, shortly))
	asks := merchant()
	id := mustCreate(t, wanting, asks, newSession()).Session.ID
	if _, err := wanting.Settle(t.Context(), id, paid("a")); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("with one replica of two: %v, want ErrUnavailable", err)
	}
	follow(t, master)
	if got, err := open(t, master.URL(), copied(2, patience)).Settle(t.Context(), id, paid("a")); err != nil || !got.Applied {
		t.Errorf("with both: %+v, %v", got, err)
	}
}

// A server that has forgotten its scripts is taught, and replicas are waited for all the same.
func TestSettle_ReplicatedAfterScriptFlush(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := follow(t, master)
	s := open(t, master.URL(), copied(1, patience))
	id := mustCreate(t, s, merchant(), newSession()).Session.ID
	must(t, client(t, master).ScriptFlush(t.Context()).Err())
	if got, err := s.Settle(t.Context(), id, paid("a")); err != nil || !got.Applied || got.Repeated {
		t.Errorf("%+v, %v", got, err)
	}
	if n := client(t, replica).Exists(t.Context(), bucketTag(id.Bucket())+"session:"+id.String()).Val(); n != 1 {
		t.Error("the replica does not have it")
	}
}

// followCluster gives each server of a Redis Cluster a replica.
func followCluster(t *testing.T, servers []*redistest.Server) (replicas []*redistest.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(servers[0].Addr())
	must(t, err)
	for _, master := range servers {
		replica := redistest.Start(t, storetest.ClusterArgs...)
		c := client(t, replica)
		must(t, c.ClusterMeet(t.Context(), host, port).Err())
		id, err := client(t, master).Do(t.Context(), "CLUSTER", "MYID").Text()
		must(t, err)
		eventually(t, "the replica knows its master", func() bool { return c.ClusterReplicate(t.Context(), id).Err() == nil })
		followed(t, replica)
		replicas = append(replicas, replica)
	}
	return replicas
}

// In a Redis Cluster it is the server which ran the script that is asked, also while a slot moves to another one.
func TestSettle_ReplicatedInCluster(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	replicas := followCluster(t, servers)
	s := open(t, "redis+cluster://"+servers[0].Addr(), copied(1, patience))
	asks := merchantIn(7)
	var ids []session.ID
	for range 3 {
		ids = append(ids, mustCreate(t, s, asks, newSession()).Session.ID)
	}
	settled := func(when string, id session.ID) {
		t.Helper()
		if got, err := s.Settle(t.Context(), id, paid("a")); err != nil || !got.Applied || got.Repeated {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
	settled("at first", ids[0])

	slot := int(client(t, servers[0]).ClusterKeySlot(t.Context(), merchantTag(asks.MerchantID)).Val())
	at := slot * 3 / slots
	from, to := client(t, servers[at]), client(t, servers[(at+1)%3])
	toID := moveSlot(t, slot, from, to)
	if _, err := s.Settle(t.Context(), ids[1], paid("a")); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("while the slot moves: %v, want ErrUnavailable", err)
	}
	for _, c := range []*goredis.Client{to, from} {
		must(t, c.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", toID).Err())
	}
	settled("after the move", ids[1])
	settled("and another", ids[2])

	replicas[(at+1)%3].Pause()
	hasty := open(t, "redis+cluster://"+servers[0].Addr(), copied(1, shortly))
	if _, err := hasty.Settle(t.Context(), ids[2], paid("a")); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("with a replica that is frozen: %v, want ErrUnavailable", err)
	}
}

// moveSlot moves all of a slot, but not the ownership. It returns the id of the server that is to own it.
func moveSlot(t *testing.T, slot int, from, to *goredis.Client) (toID any) {
	t.Helper()
	toID = to.Do(t.Context(), "CLUSTER", "MYID").Val()
	must(t, to.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do(t.Context(), "CLUSTER", "MYID").Val()).Err())
	must(t, from.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err())
	host, port, err := net.SplitHostPort(to.Options().Addr)
	must(t, err)
	for _, key := range from.ClusterGetKeysInSlot(t.Context(), slot, 1000).Val() {
		must(t, from.Migrate(t.Context(), host, port, key, 0, patience).Err())
	}
	return toID
}

// startSentinel starts a Sentinel that alone decides about the master named pay, and returns its address.
func startSentinel(t *testing.T, masterPort string) string {
	t.Helper()
	number, err := freeport.Choose()
	must(t, err)
	port := strconv.Itoa(number)
	addr := net.JoinHostPort("127.0.0.1", port)

	// A Sentinel writes what it learns into its configuration.
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	settings := fmt.Appendf(nil, "bind 127.0.0.1\nport %s\nsentinel monitor pay 127.0.0.1 %s 1\n", port, masterPort)
	must(t, os.WriteFile(config, settings, 0o600))
	binary, err := redistest.Binary()
	must(t, err)
	process := exec.CommandContext(t.Context(), binary, config, "--sentinel")
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.WaitDelay = patience
	must(t, process.Start())
	t.Cleanup(func() { _ = process.Wait() }) // the context of t has ended by then

	c := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	eventually(t, "the Sentinel answers", func() bool { return c.Ping(t.Context()).Err() == nil })
	return addr
}

// redis-sentinel is redis-server by another name; this is the failover as Sentinel does it.
func TestSentinel_Failover(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	_, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	eventually(t, "the replica follows", func() bool {
		return strings.Contains(client(t, replica).Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	sentinel := startSentinel(t, port)
	watcher := goredis.NewSentinelClient(&goredis.Options{Addr: sentinel, ReadTimeout: patience})
	defer func() { _ = watcher.Close() }()
	eventually(t, "the Sentinel knows the replica", func() bool {
		return len(watcher.Replicas(t.Context(), "pay").Val()) == 1
	})

	user := storetest.SentinelRights(t).User(t, goredis.NewClient(&goredis.Options{Addr: sentinel, ReadTimeout: patience, Protocol: 2, DisableIdentity: true}))
	name, password, _ := strings.Cut(user, ":")
	for _, server := range []*redistest.Server{master, replica} { // ACLs are not replicated
		storetest.UserURL(t, server)
	}
	s := open(t, "redis+sentinel://"+user+"@"+sentinel+"/0?master_name=pay&username="+name+"&password="+password)
	must(t, s.Check(t.Context()))
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	eventually(t, "the replica has the session", func() bool {
		return client(t, replica).Exists(t.Context(), merchantTag(asks.MerchantID)+"session:"+created.ID.String()).Val() == 1
	})
	eventually(t, "the Sentinel finds the replica good enough", func() bool {
		return watcher.Failover(t.Context(), "pay").Err() == nil
	})
	eventually(t, "the replica is the master", func() bool {
		return strings.Contains(client(t, replica).Info(t.Context(), "replication").Val(), "role:master")
	})
	eventually(t, "the store writes to the new master, which has the session", func() bool {
		_, read, err := s.Session(t.Context(), asks, created.ID)
		return err == nil && read.ID == created.ID
	})
}
