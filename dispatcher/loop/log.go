package loop

import (
	"log/slog"
	"sync"
	"time"
)

// Log limits how often the same message is logged. It is safe for concurrent use.
type Log struct {
	*slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // by message
}

// NewLog returns a Log that writes to a logger.
func NewLog(log *slog.Logger) *Log { return &Log{Logger: log, last: map[string]time.Time{}} }

// Allow reports whether the message, one of a closed list, was last logged at least an interval ago.
func (log *Log) Allow(message string, interval time.Duration) bool {
	log.mu.Lock()
	defer log.mu.Unlock()
	now := time.Now()
	if last, logged := log.last[message]; logged && now.Sub(last) < interval {
		return false
	}
	log.last[message] = now
	return true
}

// RedisFailed logs an error of Redis, at most every ten seconds.
func (log *Log) RedisFailed(err error) {
	const interval = 10 * time.Second
	if log.Allow("redis", interval) {
		log.Error("could not process events; retrying", "error", err)
	}
}
