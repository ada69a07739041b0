package link

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogTo has the client log to log instead of in lines of its own to stderr. It has one log for the whole process, so that of
// all links is the last one given.
func LogTo(log *slog.Logger) { redis.SetLogger(clientLog{log}) }

// clientLog is the client's logger. The client has no levels to speak of; what it logs is mostly a connection that failed.
type clientLog struct{ log *slog.Logger }

// Printf logs a message of the client.
func (l clientLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.WarnContext(ctx, "from the client of Redis", "message", fmt.Sprintf(format, args...))
}
