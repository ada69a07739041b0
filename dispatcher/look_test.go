package dispatcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// calls is how often Redis has run a command.
func (s scene) calls(t *testing.T, command string) int {
	t.Helper()
	statistics, err := s.redis(t).Info(t.Context(), "commandstats").Result()
	must(t, err)
	for line := range strings.Lines(statistics) {
		if rest, found := strings.CutPrefix(line, "cmdstat_"+command+":calls="); found {
			var calls int
			_, err := fmt.Sscanf(rest, "%d,", &calls)
			must(t, err)
			return calls
		}
	}
	return 0
}

// Leases and sweeps begin with a ZRANGEBYSCORE: at rest there are none, however often a dispatcher looks.
func TestADispatcherAtRestDoesNothingButLook(t *testing.T) {
	s := newScene(t)
	acme := s.endpointAt("http://127.0.0.1:1", 7)
	s.create(t, acme.MerchantID, nil)
	start(t, s.dispatcher(t))
	const looks, zsets = 5, 2 * session.Buckets
	eventually(t, "it has looked some times", func() bool { return s.calls(t, "zrange") >= looks*zsets })
	if n := s.calls(t, "zrangebyscore"); n != 0 {
		t.Errorf("%d leases and sweeps, with nothing due", n)
	}
}

// In each bucket there is one session past its time, and nobody reads it.
func TestEveryBucketIsLookedAfter(t *testing.T) {
	s := newScene(t)
	start(t, s.dispatcher(t))
	for i := range session.Buckets {
		s.create(t, newMerchantID(session.Bucket(i)), func(n *store.NewSession) { n.Lifetime = 20 * time.Millisecond })
	}
	eventually(t, "all of them are expired and nothing waits", func() bool {
		keys, err := s.redis(t).Keys(t.Context(), "{b??}:expiry").Result()
		return err == nil && len(keys) == 0
	})
}
