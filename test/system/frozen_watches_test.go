package system

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// freezeWatches holds back every watch of every replica until the test ends.
func (s tenant) freezeWatches() {
	for _, proxy := range shared.proxies {
		proxy.FreezeWatches()
		s.T.Cleanup(proxy.ThawWatches)
	}
}

// deadKeys are keys that a 200 has declared dead.
type deadKeys struct {
	mu   sync.Mutex
	keys []string
}

func (g *deadKeys) add(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys = append(g.keys, key)
}

// pick returns the n-th dead key, counted around; empty while all are alive.
func (g *deadKeys) pick(n int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.keys) == 0 {
		return ""
	}
	return g.keys[len(g.keys)-1-n%min(len(g.keys), 8)] // the latest deaths are the likeliest to be missed
}

// TestNoDeadKeyIsAcceptedWhileEveryWatchIsFrozen rotates again and again, on one replica after the
// other, while callers try dead keys on all of them.
func TestNoDeadKeyIsAcceptedWhileEveryWatchIsFrozen(t *testing.T) {
	const rotations, leastProbes = 60, 2_000
	s := newTenant(t)
	s.Merchant("coffee")
	apiKey, initial := s.ApiKey("till", "coffee")
	s.Change(apiKey, func() { apiKey.Spec.Rotation.Trigger = "leaves a key in its overlap" })
	s.AwaitReady(apiKey)
	key := s.Delivered("till-key", "apiKey")
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusOK)
		s.want(s.call(replica, http.MethodGet, me, initial, ""), http.StatusOK)
	}
	s.freezeWatches()

	dead := &deadKeys{}
	var probes, unanswered, accepted atomic.Int64
	var callers sync.WaitGroup
	done := make(chan struct{})
	for caller := range 2 * len(shared.replicas) {
		callers.Go(func() {
			for n := caller; ; n++ {
				select {
				case <-done:
					if probes.Load() >= leastProbes || t.Failed() {
						return
					}
				default:
				}
				key := dead.pick(n)
				if key == "" {
					continue
				}
				switch got := s.try(n%len(shared.replicas), key); got {
				case http.StatusUnauthorized:
					probes.Add(1)
				case http.StatusServiceUnavailable: // Redis took too long on a busy machine, and nobody was let in
					unanswered.Add(1)
				default:
					accepted.Add(1)
					t.Errorf("a dead key got %d", got)
				}
			}
		})
	}
	for rotation := range rotations {
		rotated := s.call(rotation%len(shared.replicas), http.MethodPost, rotate, key, "")
		if rotated.Status != http.StatusOK {
			t.Errorf("rotation %d: status %d: %s", rotation, rotated.Status, rotated.Raw)
			break
		}
		dead.add(key)
		if rotation == 0 {
			dead.add(initial) // a rotation over HTTP ends the overlap of earlier ones
		}
		key = rotated.Body["fullKey"].(string)
		for replica := range shared.replicas {
			if got := s.try(replica, key); got != http.StatusOK {
				t.Errorf("rotation %d: replica %d answers the new key with %d", rotation, replica, got)
			}
		}
	}
	close(done)
	callers.Wait()
	t.Logf("%d rotations, %d probes with dead keys, %d accepted, %d not answered",
		rotations, probes.Load(), accepted.Load(), unanswered.Load())
}
