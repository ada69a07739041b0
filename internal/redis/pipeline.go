package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipeline limits how many batches of commands are under way at a time; what arrives meanwhile waits and forms the next batch.
// A command that finds a batch free is sent at once and alone, so one caller waits for nobody, and many callers share what is
// expensive, the system calls of both sides. The size of a batch follows from the load alone.
//
// Requests of a batch share nothing but the connection: one that leads a batch sends it even when its own caller has left. Only a
// batch that was sent has a timeout. It bounds the wait of the others too: a timer for each would cost more than the wait for Redis.
type pipeline struct {
	client  redis.UniversalClient
	timeout time.Duration
	limit   int // batches

	mu       sync.Mutex
	inFlight int        // batches
	waiting  []*request // in the order of arrival; none while fewer than limit batches are in flight
}

// maxBatch bounds what is lost with one connection, and how long the first answer waits for the last command to be written.
const maxBatch = 64

// request is a command and what became of it. Its state is guarded by the mutex of the pipeline.
type request struct {
	command redis.Cmder
	state   requestState
	// next receives what the request has to do next; it has room for it.
	next chan step
}

type requestState int

const (
	waiting  requestState = iota
	taken                 // into a batch, or to lead one
	canceled              // its caller has left
)

// step is what a waiting request does next.
type step int

const (
	answered step = iota // the command has its answer
	lead                 // send the next batch
)

func newPipeline(client redis.UniversalClient, timeout time.Duration, limit int) *pipeline {
	return &pipeline{client: client, timeout: timeout, limit: limit}
}

// process sends a command and waits for its answer.
func (p *pipeline) process(ctx context.Context, command redis.Cmder) error {
	p.mu.Lock()
	if p.inFlight < p.limit {
		p.inFlight++
		p.mu.Unlock()
		defer p.finish()
		return p.send(ctx, command)
	}
	r := &request{command: command, next: make(chan step, 1)}
	p.waiting = append(p.waiting, r)
	p.mu.Unlock()

	select {
	case next := <-r.next:
		if next == lead {
			p.lead(ctx, r)
		}
		return command.Err()
	case <-ctx.Done():
		p.cancel(r)
		return ctx.Err()
	}
}

// cancel is for a caller who does not wait any longer. Its command is not sent if it has not been yet.
func (p *pipeline) cancel(r *request) {
	p.mu.Lock()
	before := r.state
	r.state = canceled
	p.mu.Unlock()
	if before == waiting {
		return
	}
	// A request that was called to lead must pass that on, or the others wait for ever.
	select {
	case next := <-r.next:
		if next == lead {
			p.finish()
		}
	default: // in a batch that was sent
	}
}

// finish ends a batch: the request that has waited longest leads the next one.
func (p *pipeline) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, first := range p.waiting {
		if first.state == waiting {
			first.state = taken
			p.waiting = p.waiting[i+1:]
			first.next <- lead
			return
		}
	}
	p.waiting = nil
	p.inFlight--
}

// lead sends a command in one batch with those that wait.
func (p *pipeline) lead(ctx context.Context, first *request) {
	others := p.take()
	defer func() {
		for _, other := range others {
			other.next <- answered
		}
	}()
	defer p.finish() // before the others go on: Redis waits for more
	if len(others) == 0 {
		first.command.SetErr(p.send(ctx, first.command))
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout)
	defer cancel()
	batch := p.client.Pipeline()
	_ = batch.Process(ctx, first.command) // only collects, as for the others
	for _, other := range others {
		_ = batch.Process(ctx, other.command)
	}
	_, _ = batch.Exec(ctx) // each command has its own error
}

// send sends a command alone.
func (p *pipeline) send(ctx context.Context, command redis.Cmder) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.client.Process(ctx, command)
}

// take returns those that wait, as many as a batch has room for beside its leader.
func (p *pipeline) take() []*request {
	p.mu.Lock()
	defer p.mu.Unlock()
	others := p.waiting
	if len(others) >= maxBatch {
		others, p.waiting = others[:maxBatch-1], slices.Clone(others[maxBatch-1:])
	} else {
		p.waiting = nil
	}
	others = slices.DeleteFunc(others, func(r *request) bool { return r.state == canceled })
	for _, other := range others {
		other.state = taken
	}
	return others
}
