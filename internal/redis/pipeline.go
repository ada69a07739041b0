package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipeline sends commands to one server. At most limit batches are in progress at a time. A command that finds one of them free is sent
// at once and alone, so a lone caller does not wait. Commands that come while all are busy wait in a queue, and are sent together by
// the first batch that ends: many callers share what is expensive, the system calls of both sides.
//
// Every caller has its answer or an error within the timeout, whatever the server does and however many callers there are. A command that
// waits has a deadline, sent or not. By the pace of the last rounds, one that could not be answered in time does not join the queue, and
// one that no longer can is not sent.
type pipeline struct {
	client  redis.UniversalClient
	timeout time.Duration
	limit   int // batches

	mu       sync.Mutex
	inFlight int      // batches
	queue    []*job   // not sent yet, in order of arrival; empty while fewer than limit batches are in progress
	left     int      // those of queue whose callers have gone
	batches  []*batch // those of inFlight that were taken from the queue
	sweeping bool     // a timer will run sweep

	// How long the last three rounds took. A round is one of the batches that are in progress together: a stall hits all of them, once.
	rounds   [3]time.Duration
	roundEnd time.Time // of the last one
}

// maxBatch bounds what is lost with one connection, and how long the first answer waits for the last command to be written.
const maxBatch = 64

// sweepInterval is the least between two looks for deadlines that have passed.
const sweepInterval = time.Millisecond

// job is a command that waits in the queue, or in a batch.
type job struct {
	command  redis.Cmder
	deadline time.Time
	queued   bool       // it is in the queue. Guarded by the mutex of the pipeline, as is left
	left     bool       // its caller has gone or was answered: it is not sent
	done     chan error // has room for one; the first counts
}

// batch is the jobs that are sent together. Only sweep reads them beside its goroutine; the mutex of the pipeline guards changes.
type batch struct{ jobs []*job }

// errQueue says that a command was not sent, because it would not have been answered in time.
var errQueue = errors.New("the queue to Redis is not drained in time")

func newPipeline(client redis.UniversalClient, timeout time.Duration, limit int) *pipeline {
	return &pipeline{client: client, timeout: timeout, limit: limit}
}

// process sends a command and waits for its answer. The command must not be read after an error that is not the server's: it may still
// be in progress.
func (p *pipeline) process(ctx context.Context, command redis.Cmder) error {
	now := time.Now()
	p.mu.Lock()
	if p.inFlight < p.limit {
		p.inFlight++
		p.mu.Unlock()
		defer p.finish(nil, now) //nolint:contextcheck // the next batch is not this caller's
		return p.send(ctx, command)
	}
	if !p.servesInTime() {
		p.mu.Unlock()
		return errQueue
	}
	j := &job{command: command, deadline: now.Add(p.timeout), queued: true, done: make(chan error, 1)}
	p.queue = append(p.queue, j)
	if !p.sweeping {
		p.sweeping = true
		time.AfterFunc(p.timeout, p.sweep)
	}
	p.mu.Unlock()

	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		p.mu.Lock()
		if j.left = true; j.queued {
			p.left++
		}
		p.mu.Unlock()
		return ctx.Err()
	}
}

// pace is how long a round takes: the middle one of the last three. One slow round says nothing about the next ones, two do.
func (p *pipeline) pace() time.Duration {
	a, b, c := p.rounds[0], p.rounds[1], p.rounds[2]
	return max(min(a, b), min(max(a, b), c))
}

// servesInTime reports whether a command that joins the queue now may be answered before its deadline: after the rounds before it and its
// own, if that in progress ends at once.
func (p *pipeline) servesInTime() bool {
	before := (len(p.queue) - p.left) / (maxBatch * p.limit)
	return time.Duration(before+1)*p.pace() <= p.timeout
}

// finish ends a batch, or a command that was sent alone (nil). Its connection goes on with what waits.
func (p *pipeline) finish(ended *batch, began time.Time) {
	if b := p.next(ended, began); b != nil {
		go p.run(b)
	}
}

// next ends a batch, or a command that was sent alone (nil), and takes the next batch from the queue; nil: nothing waits.
func (p *pipeline) next(ended *batch, began time.Time) *batch {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !began.Before(p.roundEnd) {
		p.rounds, p.roundEnd = [3]time.Duration{p.rounds[1], p.rounds[2], now.Sub(began)}, now
	}
	if ended != nil {
		p.batches = slices.DeleteFunc(p.batches, func(b *batch) bool { return b == ended })
	}
	if p.left > 0 {
		p.queue, p.left = slices.DeleteFunc(p.queue, func(j *job) bool { return j.left }), 0
	}
	p.reject(now.Add(p.pace()))
	if len(p.queue) == 0 {
		p.inFlight--
		return nil
	}
	size := min(len(p.queue), maxBatch)
	b := &batch{slices.Clone(p.queue[:size])}
	p.queue = slices.Delete(p.queue, 0, size)
	for _, j := range b.jobs {
		j.queued = false
	}
	p.batches = append(p.batches, b)
	return b
}

// reject takes the first jobs out of the queue that have left, or whose deadline is not after a time.
func (p *pipeline) reject(until time.Time) {
	rejected := 0
	for _, j := range p.queue {
		if !j.left && j.deadline.After(until) {
			break // deadlines are in order of arrival
		}
		if j.left {
			p.left--
		}
		j.queued, j.left = false, true
		j.end(errQueue)
		rejected++
	}
	p.queue = slices.Delete(p.queue, 0, rejected)
}

// run sends the jobs of a batch together, and gives each its answer.
func (p *pipeline) run(b *batch) {
	began := time.Now()
	ctx := context.Background() // a caller that leaves takes nothing from the others
	if len(b.jobs) == 1 {
		err := p.send(ctx, b.jobs[0].command)
		p.finish(b, began)
		b.jobs[0].end(err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	commands := p.client.Pipeline()
	for _, j := range b.jobs {
		_ = commands.Process(ctx, j.command) // only collects
	}
	_ = exec(ctx, commands) // each command has its own error
	p.finish(b, began)      // before the callers go on: Redis waits for more
	for _, j := range b.jobs {
		j.end(j.command.Err())
	}
}

var errNoAnswer = errors.New("no answer")

// exec sends commands together. Then each has an answer or an error: if Redis has refused the connection with an answer, such as WRONGPASS, the
// client gives that to none of them.
func exec(ctx context.Context, together redis.Pipeliner) error {
	commands, err := together.Exec(ctx)
	cause := errNoAnswer
	if err != nil && !slices.ContainsFunc(commands, func(c redis.Cmder) bool { return errors.Is(c.Err(), err) }) {
		cause = err
	}
	for _, command := range commands {
		if c, ok := command.(interface{ Val() any }); ok && command.Err() == nil && c.Val() == nil {
			command.SetErr(cause)
		}
	}
	return err
}

// send sends a command alone.
func (p *pipeline) send(ctx context.Context, command redis.Cmder) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.client.Process(ctx, command)
}

// sweep ends the jobs whose deadline has passed. One timer does so for all: one for each would cost more than the wait for Redis.
func (p *pipeline) sweep() {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reject(now)
	var next time.Time // zero: no job waits
	if len(p.queue) > 0 {
		next = p.queue[0].deadline
	}
	for _, b := range p.batches {
		for _, j := range b.jobs {
			switch {
			case j.left:
			case !j.deadline.After(now):
				j.left = true
				j.end(context.DeadlineExceeded) // the connection is given the whole timeout: closing it would cost all others
			case next.IsZero() || j.deadline.Before(next):
				next = j.deadline
			}
		}
	}
	if p.sweeping = !next.IsZero(); p.sweeping {
		time.AfterFunc(max(next.Sub(now), sweepInterval), p.sweep)
	}
}

// end gives the caller its answer; only the first one counts.
func (j *job) end(err error) {
	select {
	case j.done <- err:
	default:
	}
}
