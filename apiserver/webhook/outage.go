package webhook

import (
	"log/slog"
	"sync"
	"time"
)

// outage logs that Redis is away, and not once for each of a hundred loops.
type outage struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	told time.Time
}

// outageSilence is how long an outage is not mentioned again.
const outageSilence = 10 * time.Second

func (o *outage) tell(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.now(); now.Sub(o.told) >= outageSilence {
		o.told = now
		o.log.Error("could not work on events; trying again", "error", err)
	}
}
