package authz

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// decisionCache has decisions by the digest of what was asked. What does not fit is reviewed each time.
type decisionCache struct {
	limit int

	mu       sync.Mutex
	byDigest map[[sha256.Size]byte]decision
}

type decision struct {
	err   error // nil: allowed
	until time.Time
}

func newDecisionCache(limit int) *decisionCache {
	return &decisionCache{limit: limit, byDigest: map[[sha256.Size]byte]decision{}}
}

func (c *decisionCache) get(digest [sha256.Size]byte, now time.Time) (found decision, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known = c.byDigest[digest]
	return found, known && now.Before(found.until)
}

// wasAllowed reports whether the cache has a decision that allowed the token until the time or later.
func (c *decisionCache) wasAllowed(digest [sha256.Size]byte, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.byDigest[digest]
	return known && found.err == nil && at.Before(found.until)
}

func (c *decisionCache) delete(digest [sha256.Size]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byDigest, digest)
}

func (c *decisionCache) put(digest [sha256.Size]byte, decided decision, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byDigest) >= c.limit {
		maps.DeleteFunc(c.byDigest, func(_ [sha256.Size]byte, old decision) bool { return !now.Before(old.until) })
	}
	if len(c.byDigest) < c.limit {
		c.byDigest[digest] = decided
	}
}
