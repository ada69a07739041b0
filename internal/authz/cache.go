package authz

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// maxVerdicts bounds a memory. There are a few rails; more tokens than this are an attack, and each that
// does not fit only costs its own question.
const maxVerdicts = 4096

// verdicts remembers what was decided about tokens, which it knows by their digest alone.
type verdicts struct {
	mu     sync.Mutex
	byHash map[[sha256.Size]byte]verdict
}

type verdict struct {
	err   error // nil: welcome
	until time.Time
}

func newVerdicts() *verdicts { return &verdicts{byHash: map[[sha256.Size]byte]verdict{}} }

func (v *verdicts) get(digest [sha256.Size]byte, now time.Time) (found verdict, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, known = v.byHash[digest]
	return found, known && now.Before(found.until)
}

// wasGood reports whether there is a verdict that was good until the time, or later. It may have been forgotten: then not.
func (v *verdicts) wasGood(digest [sha256.Size]byte, at time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, known := v.byHash[digest]
	return known && found.err == nil && at.Before(found.until)
}

func (v *verdicts) drop(digest [sha256.Size]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byHash, digest)
}

func (v *verdicts) put(digest [sha256.Size]byte, decided verdict, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.byHash) >= maxVerdicts {
		maps.DeleteFunc(v.byHash, func(_ [sha256.Size]byte, old verdict) bool { return !now.Before(old.until) })
	}
	if len(v.byHash) < maxVerdicts {
		v.byHash[digest] = decided
	}
}
