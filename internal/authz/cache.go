package authz

import (
	"crypto/sha256"
	"sync"
	"time"
)

// decisionCache has decisions by the digest of what was asked. What does not fit is reviewed each time.
type decisionCache struct {
	limit int
	// keep is how long a decision that has ended is kept for wasAllowed, if there is room.
	keep time.Duration

	mu       sync.Mutex
	byDigest map[[sha256.Size]byte]decision
}

type decision struct {
	account string // the user name of who is allowed, if it was asked for
	err     error  // nil: allowed
	until   time.Time
}

func newDecisionCache(limit int, keep time.Duration) *decisionCache {
	return &decisionCache{limit: limit, keep: keep, byDigest: map[[sha256.Size]byte]decision{}}
}

func (c *decisionCache) get(digest [sha256.Size]byte, now time.Time) (found decision, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known = c.byDigest[digest]
	return found, known && now.Before(found.until)
}

// wasAllowed reports whether the cache has a decision that allowed the token until the time or later.
func (c *decisionCache) wasAllowed(digest [sha256.Size]byte, at time.Time) (account string, allowed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.byDigest[digest]
	return found.account, known && found.err == nil && at.Before(found.until)
}

func (c *decisionCache) delete(digest [sha256.Size]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byDigest, digest)
}

func (c *decisionCache) put(digest [sha256.Size]byte, decided decision, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.byDigest[digest]
	if !known && len(c.byDigest) >= c.limit {
		c.makeRoom(now)
	}
	if known || len(c.byDigest) < c.limit {
		c.byDigest[digest] = decided
	}
}

// makeRoom deletes the decisions that need not be kept. If there is none, it deletes the one that ended first.
func (c *decisionCache) makeRoom(now time.Time) {
	var first [sha256.Size]byte
	var end time.Time
	for digest, old := range c.byDigest {
		switch {
		case now.Before(old.until):
		case !now.Before(old.until.Add(c.keep)):
			delete(c.byDigest, digest)
		case end.IsZero() || old.until.Before(end):
			first, end = digest, old.until
		}
	}
	if len(c.byDigest) >= c.limit {
		delete(c.byDigest, first)
	}
}
