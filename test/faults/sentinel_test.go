//go:build faults

package faults

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// sentinels decide together, two of three, about one master that is silent for a second.
const sentinels = 3

// watchedBySentinels is one pair with Sentinels.
func watchedBySentinels(t *testing.T) pairs {
	t.Helper()
	return watchedBySentinelsWith(t, startMember)
}

// watchedBySentinelsWith is one pair whose replica is started by a function.
func watchedBySentinelsWith(t *testing.T, startReplica func(*testing.T, ...string) member) pairs {
	t.Helper()
	master := startMember(t, "--repl-diskless-sync-delay", "0")
	_, port, _ := net.SplitHostPort(master.Addr())
	p := pairs{shards: [][]member{{master, startReplica(t, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1 "+port)}}}
	p.agreed(t, 0, p.shards[0]...)
	var addresses []string
	for range sentinels {
		addresses = append(addresses, startSentinel(t, port))
	}
	for _, address := range addresses {
		watcher := redis.NewSentinelClient(&redis.Options{Addr: address})
		t.Cleanup(func() { _ = watcher.Close() })
		p.watchers = append(p.watchers, watcher)
		eventuallySees(t, "a Sentinel knows the replica and the other Sentinels", func() (string, bool) {
			replicas, others := watcher.Replicas(t.Context(), "pay"), watcher.Sentinels(t.Context(), "pay")
			return fmt.Sprintf("it says\n%s\n%s", replicas, others), len(replicas.Val()) == 1 && len(others.Val()) == sentinels-1
		})
	}
	p.url = "redis+sentinel://" + addresses[0] + "/0?master_name=pay&addr=" + strings.Join(addresses[1:], "&addr=")
	return p
}

func startSentinel(t *testing.T, masterPort string) (address string) {
	t.Helper()
	if err := fixture.Choose(&address); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	// A Sentinel writes what it learns into its configuration.
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	lines := fmt.Appendf(nil, "bind 127.0.0.1\nport %s\nsentinel monitor pay 127.0.0.1 %s 2\n"+
		"sentinel down-after-milliseconds pay 1000\nsentinel failover-timeout pay 10000\n", port, masterPort)
	if err := os.WriteFile(config, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	binary, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(binary, config, "--sentinel")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	return address
}

func keeperOf(t *testing.T, server *redistest.Server) *redis.Client {
	t.Helper()
	keeper := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = keeper.Close() })
	return keeper
}

// tryFrozenReplica reports payments while the replica that must have them is frozen. The second report of one changes
// nothing, so it writes nothing; since Redis 7.2 WAIT answers at once on a connection that has written nothing.
func tryFrozenReplica(t *testing.T) (int, string) {
	t.Helper()
	p := watchedBySentinels(t)
	master, replica := p.roles(t, 0)
	// Not by the Sentinels: a master that nobody watches is not replaced while its replica is frozen.
	s := deployOn(t, "redis://"+master.Addr()+"/0", 2, 0, "--settlement-replicas", "1")
	s.Merchant("coffee")
	key, rail := s.apiKey("till", "coffee"), s.railToken()
	s.settlesEverywhere(rail)
	rounds, refused := 2**intensity, 0
	report := func(n int, id string) fixture.Answer {
		got, err := newCaller().call(s.replicas[n%2].internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", rail,
			`{"paymentRef":"card-1","outcome":"COMPLETED","amountCents":1250}`)
		s.must(err)
		return got
	}
	for range rounds {
		id := s.mustCall(http.StatusCreated, s.replicas[0].public, http.MethodPost, sessions, key, `{"amountCents":1250}`).Text("sessionId")
		replica.Pause()
		for n := range 8 { // on both API replicas, and on connections that reported before
			if got := report(n, id); !unavailable(got) || got.Header.Get("Retry-After") == "" {
				t.Errorf("report %d, with the replica frozen: %d %v; want 503 with Retry-After", n+1, got.Status, got.Body)
				continue
			}
			refused++
		}
		replica.Resume()
		eventuallySees(t, "the report is answered as the first one would have been", func() (string, bool) {
			got := report(0, id)
			return fmt.Sprint(got.Status, got.Body), got.Status == http.StatusOK && got.Body["applied"] == true
		})
	}
	return rounds, fmt.Sprintf("%d reports got 503 while the replica was frozen, each session was settled once it followed", refused)
}
