package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

// None of these errors ever holds a key, a digest or an e-mail address.
var (
	// ErrCorrupt says that Redis holds something this program would not have written.
	ErrCorrupt = errors.New("redis holds unexpected data")
	// ErrUnavailable says that Redis gave no answer in time or refused the work. Whether the script ran is unknown.
	ErrUnavailable = errors.New("redis is unavailable")
	// ErrEviction says that Redis may evict keys, and with them sessions and revocations.
	ErrEviction = errors.New("redis must have maxmemory-policy noeviction")
)

// failure turns an error of the client into ours. Of an error that Redis answered only the code is
// kept: the text may quote the command, and with it keys and digests.
func failure(err error) error {
	answered, ok := errors.AsType[redis.Error](err)
	if !ok {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	code, _, _ := strings.Cut(answered.Error(), " ")
	if code == "WRONGTYPE" {
		return fmt.Errorf("%w: it answered %s", ErrCorrupt, code)
	}
	return fmt.Errorf("%w: it answered %s", ErrUnavailable, code)
}

// causeOf sorts the client's errors, for metrics and spans; empty: none.
func causeOf(err error) string {
	if err == nil {
		return ""
	}
	_, answered := errors.AsType[redis.Error](err)
	switch {
	case answered:
		return "answer"
	case errors.Is(err, errNotReplicated):
		return "replicas"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout):
		return "timeout"
	}
	return "connection"
}
