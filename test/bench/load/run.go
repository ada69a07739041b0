package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Target is what is asked, and what is to be answered.
type Target struct {
	// Address is host:port.
	Address string
	// Request returns the n-th request of a connection; it may change and return what it returned before, which is nil at first.
	Request func(connection, n int, before []byte) []byte
	// Status is what the answers must have: a benchmark of refusals is none. One in twenty may be another one, for on a busy machine
	// somebody's patience may end.
	Status int
}

// Schedule says how the target is asked.
type Schedule struct {
	Connections int
	// WarmUp comes before what is counted.
	WarmUp, Duration time.Duration
}

// Result is what was counted.
type Result struct {
	Requests int
	// Answered are those and the ones of the warm-up.
	Answered int
	Elapsed  time.Duration
	P50, P99 time.Duration
}

// PerSecond is the rate of requests.
func (r Result) PerSecond() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// grace is for the last answers; a server that needs more has stopped.
const grace = 5 * time.Second

// Run asks the target. An error says that an answer was not the one that is wanted, or that there was none.
func Run(ctx context.Context, target Target, schedule Schedule) (Result, error) {
	clients := make([]*client, 0, schedule.Connections)
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	for i := range schedule.Connections {
		conn, err := dial(ctx, target.Address)
		if err != nil {
			return Result{}, fmt.Errorf("connect to the target: %w", err)
		}
		clients = append(clients, &client{connection: conn, number: i, target: target})
	}
	begin := time.Now().Add(schedule.WarmUp)
	end := begin.Add(schedule.Duration)
	var asking sync.WaitGroup
	for _, c := range clients {
		asking.Go(func() { c.ask(begin, end) })
	}
	asking.Wait()
	return sum(clients, schedule.Duration), errors.Join(ctx.Err(), failures(clients))
}

// client is one connection and what it has counted.
type client struct {
	*connection

	number   int
	target   Target
	answered int
	refused  int
	refusal  int // the last status that was not wanted
	took     []time.Duration
	err      error
}

// ask asks until the end, and counts what was answered between begin and end.
func (c *client) ask(begin, end time.Time) {
	if c.err = c.stopAt(end.Add(grace)); c.err != nil {
		return
	}
	var request []byte
	asked := time.Now()
	for n := 0; asked.Before(end); n++ {
		request = c.target.Request(c.number, n, request)
		status, err := c.exchange(request)
		if err != nil {
			c.err = fmt.Errorf("request %d of connection %d: %w", n, c.number, err)
			return
		}
		if status != c.target.Status {
			c.refused++
			c.refusal = status
		}
		c.answered++
		answered := time.Now()
		if answered.After(begin) && answered.Before(end) {
			c.took = append(c.took, answered.Sub(asked))
		}
		asked = answered
	}
}

func sum(clients []*client, elapsed time.Duration) Result {
	var took []time.Duration
	answered := 0
	for _, c := range clients {
		took = append(took, c.took...)
		answered += c.answered
	}
	slices.Sort(took)
	return Result{Requests: len(took), Answered: answered, Elapsed: elapsed, P50: percentile(took, 50), P99: percentile(took, 99)}
}

// percentile is that of sorted durations, 0 of none.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// failures returns the first few errors: they are mostly the same.
func failures(clients []*client) error {
	const few, tolerable = 3, 20
	var errs []error
	var answered, refused, refusal int
	for _, c := range clients {
		answered += c.answered
		if c.refused > 0 {
			refused += c.refused
			refusal = c.refusal
		}
		if c.err != nil && len(errs) < few {
			errs = append(errs, c.err)
		}
	}
	if refused*tolerable > answered {
		errs = append(errs, fmt.Errorf("%d of %d requests were answered otherwise than they should, as with %d", refused, answered, refusal))
	}
	return errors.Join(errs...)
}

// Times asks n times on one connection.
func Times(ctx context.Context, target Target, n int) error {
	conn, err := dial(ctx, target.Address)
	if err != nil {
		return fmt.Errorf("connect to the target: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.stopAt(time.Now().Add(grace)); err != nil {
		return err
	}
	var request []byte
	for i := range n {
		request = target.Request(0, i, request)
		status, err := conn.exchange(request)
		if err != nil {
			return err
		}
		if status != target.Status {
			return fmt.Errorf("answered %d, not %d", status, target.Status)
		}
	}
	return nil
}
