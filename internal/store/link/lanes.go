package link

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lanes let few commands travel at a time, and those that have to wait meanwhile travel together: the first of them takes the
// others along. A command that finds a lane free leaves at once and alone, so one caller waits for nobody, and many callers
// share what is dear, the system calls of both sides. How many travel together follows from the load alone.
//
// They share no fate but the connection's: a command that leads others lets them go on when its own caller has left. Only those that
// travel have a timeout. It bounds the wait of the others too, who go with the next ones: a timer for each would cost
// more than the wait for Redis.
type lanes struct {
	client  redis.UniversalClient
	timeout time.Duration
	limit   int // lanes

	mu      sync.Mutex
	busy    int     // lanes
	waiting []*ride // in the order of their coming; there are none while a lane is free
}

// mostTogether bounds what is lost with one connection, and how long the first answer waits for the last command to be written.
const mostTogether = 64

// ride is a command on its way. Its place is guarded by the mutex of the lanes.
type ride struct {
	command redis.Cmder
	place   place
	// turn receives what the ride was waiting for; it has room for it.
	turn chan turn
}

type place int

const (
	queued place = iota
	taken        // along by another, or to lead
	left         // its caller did not wait any longer
)

type turn int

const (
	answered turn = iota
	lead
)

func newLanes(client redis.UniversalClient, timeout time.Duration) *lanes {
	return &lanes{client: client, timeout: timeout, limit: runtime.GOMAXPROCS(0)}
}

// process sends a command and waits for its answer.
func (l *lanes) process(ctx context.Context, command redis.Cmder) error {
	l.mu.Lock()
	if l.busy < l.limit {
		l.busy++
		l.mu.Unlock()
		defer l.pass()
		return l.alone(ctx, command)
	}
	waiting := &ride{command: command, turn: make(chan turn, 1)}
	l.waiting = append(l.waiting, waiting)
	l.mu.Unlock()

	select {
	case came := <-waiting.turn:
		if came == lead {
			l.lead(ctx, waiting)
		}
		return command.Err()
	case <-ctx.Done():
		l.leave(waiting)
		return ctx.Err()
	}
}

// leave is for a caller who does not wait any longer. Its command is not sent if it has not been yet.
func (l *lanes) leave(waiting *ride) {
	l.mu.Lock()
	before := waiting.place
	waiting.place = left
	l.mu.Unlock()
	if before == queued {
		return
	}
	// Whoever has been called to lead must, for the sake of the others.
	select {
	case came := <-waiting.turn:
		if came == lead {
			l.pass()
		}
	default: // on its way with others
	}
}

// pass gives a lane to the ride that has waited longest, to lead, or frees it.
func (l *lanes) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, next := range l.waiting {
		if next.place == queued {
			next.place = taken
			l.waiting = l.waiting[i+1:]
			next.turn <- lead
			return
		}
	}
	l.waiting = nil
	l.busy--
}

// lead sends a command together with those that wait, and gives its lane to the next.
func (l *lanes) lead(ctx context.Context, first *ride) {
	others := l.take()
	defer func() {
		for _, other := range others {
			other.turn <- answered
		}
	}()
	defer l.pass() // before the others go on: Redis waits for more
	if len(others) == 0 {
		first.command.SetErr(l.alone(ctx, first.command))
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
	defer cancel()
	together := l.client.Pipeline()
	_ = together.Process(ctx, first.command) // only collects, as for the others
	for _, other := range others {
		_ = together.Process(ctx, other.command)
	}
	_, _ = together.Exec(ctx) // each command has its own error
}

func (l *lanes) alone(ctx context.Context, command redis.Cmder) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return l.client.Process(ctx, command)
}

// take takes those along who wait.
func (l *lanes) take() []*ride {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := l.waiting
	if len(others) >= mostTogether {
		others, l.waiting = others[:mostTogether-1], slices.Clone(others[mostTogether-1:])
	} else {
		l.waiting = nil
	}
	others = slices.DeleteFunc(others, func(r *ride) bool { return r.place == left })
	for _, other := range others {
		other.place = taken
	}
	return others
}
