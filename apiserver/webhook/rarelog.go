package webhook

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// rareLog says the same message once in a while, and not for each of a hundred loops or a million events.
type rareLog struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	said map[string]time.Time // by message
}

// say logs a message, which must be one of a closed list, unless it was logged less than the pause ago.
func (l *rareLog) say(level slog.Level, pause time.Duration, message string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.said[message]) >= pause {
		l.said[message] = now
		l.log.Log(context.Background(), level, message, args...)
	}
}

// outageSilence is how long an outage of Redis is not mentioned again.
const outageSilence = 10 * time.Second

// couldNotWork logs that Redis is away.
func (d *dispatcher) couldNotWork(err error) {
	d.log.say(slog.LevelError, outageSilence, "could not work on events; trying again", "error", err)
}
