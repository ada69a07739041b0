package admission

import (
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

// useRetention is how long the last uses of an ApiKey are kept after the last one.
const useRetention = 90 * 24 * time.Hour

// lastUses remembers the digests whose last use this replica has written in the current interval. Each replica does so on its
// own, so what Redis holds is never older than an interval.
type lastUses struct {
	// interval is long enough that nearly no request has to write.
	interval time.Duration

	mu      sync.Mutex
	began   time.Time
	written map[apikey.Digest]struct{}
}

func newLastUses(interval time.Duration) *lastUses {
	return &lastUses{interval: interval, written: map[apikey.Digest]struct{}{}}
}

// due reports whether a use at the time is to be written.
func (l *lastUses) due(digest apikey.Digest, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= l.interval {
		l.began = now
		clear(l.written)
		return true
	}
	_, done := l.written[digest]
	return !done
}

// markWritten remembers that a use was written.
func (l *lastUses) markWritten(digest apikey.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[digest] = struct{}{}
}

// forget lets every next use be written.
func (l *lastUses) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.written)
}

// UseDue reports whether the next request with a digest writes its last use, if the key is accepted.
func (a *Admitter) UseDue(digest apikey.Digest) bool { return a.uses.due(digest, time.Now()) }
