package store

import (
	"sync"
	"time"
)

// usesAreWritten is how often a replica writes the last use of an API key: often enough for people, and rarely enough that nearly
// no request has to.
const usesAreWritten = time.Minute

// lastUses remembers the API keys whose last use this replica has written in the current minute. Each replica does so on its
// own, so what Redis holds is never older than a minute.
type lastUses struct {
	mu      sync.Mutex
	began   time.Time
	written map[string]struct{}
}

func newLastUses() *lastUses { return &lastUses{written: map[string]struct{}{}} }

// due tells whether a use at the time is to be written.
func (l *lastUses) due(keyID string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= usesAreWritten {
		l.began = now
		clear(l.written)
		return true
	}
	_, done := l.written[keyID]
	return !done
}

// wrote takes down that a use was written.
func (l *lastUses) wrote(keyID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[keyID] = struct{}{}
}
