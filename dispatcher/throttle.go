package dispatcher

import (
	"sync"
	"time"
)

// throttle has the same thing logged once in a while, and not for each of a hundred loops or a million events.
type throttle struct {
	now func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // by what was logged
}

// allows reports whether the thing, one of a closed list, was last logged that long ago, and counts it as logged now.
func (t *throttle) allows(what string, pause time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if now.Sub(t.last[what]) < pause {
		return false
	}
	t.last[what] = now
	return true
}

// outageSilence is how long an outage of Redis is not mentioned again.
const outageSilence = 10 * time.Second

// couldNotWork logs that Redis is away.
func (d *dispatcher) couldNotWork(err error) {
	if d.logged.allows("outage", outageSilence) {
		d.options.Log.Error("could not work on events; trying again", "error", err)
	}
}
