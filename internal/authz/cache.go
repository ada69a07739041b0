package authz

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// maxDecisions limits a cache. There are few rails; more tokens are an attack, and those that do not fit are reviewed each time.
const maxDecisions = 4096

// decisionCache has decisions by the digest of the token.
type decisionCache struct {
	mu      sync.Mutex
	byToken map[[sha256.Size]byte]decision
}

type decision struct {
	err   error // nil: allowed
	until time.Time
}

func newDecisionCache() *decisionCache {
	return &decisionCache{byToken: map[[sha256.Size]byte]decision{}}
}

func (c *decisionCache) get(digest [sha256.Size]byte, now time.Time) (found decision, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known = c.byToken[digest]
	return found, known && now.Before(found.until)
}

// wasAllowed reports whether the cache has a decision that allowed the token until the time or later.
func (c *decisionCache) wasAllowed(digest [sha256.Size]byte, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.byToken[digest]
	return known && found.err == nil && at.Before(found.until)
}

func (c *decisionCache) delete(digest [sha256.Size]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byToken, digest)
}

func (c *decisionCache) put(digest [sha256.Size]byte, decided decision, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byToken) >= maxDecisions {
		maps.DeleteFunc(c.byToken, func(_ [sha256.Size]byte, old decision) bool { return !now.Before(old.until) })
	}
	if len(c.byToken) < maxDecisions {
		c.byToken[digest] = decided
	}
}
