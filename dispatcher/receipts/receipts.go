// Package receipts sends customers a mail when their payment is complete. Any number of dispatchers share the work through Redis, and none of
// it delays a webhook. See docs/design/receipts.md.
package receipts

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store/receipts"
)

const (
	pollInterval = time.Second
	// workers bounds the mails that are on their way at a time, and so the connections to the mail server.
	workers = 8
	// attemptTimeout bounds a try, leaseTime what is left to record it.
	attemptTimeout = 30 * time.Second
	leaseTime      = attemptTimeout + 30*time.Second
	// giveUpAfter is how old a receipt is when nobody tries any more. Every session that was paid is kept longer than this.
	giveUpAfter = 3 * 24 * time.Hour
	// abortTimeout is the time to end tries that were aborted.
	abortTimeout = 2 * time.Second
)

// Options configure a Sender. All are required.
type Options struct {
	Server     ServerOptions
	Store      *receipts.Store
	Log        *loop.Log
	Registerer prometheus.Registerer
	// ShutdownTimeout is how long the tries in progress may take when Run ends.
	ShutdownTimeout time.Duration
}

// Sender sends receipts.
type Sender struct {
	server          *server
	store           *receipts.Store
	log             *loop.Log
	metrics         *metrics
	shutdownTimeout time.Duration
	pollInterval    time.Duration

	free    chan struct{} // a token for each worker that has nothing to do
	freed   loop.Signal
	running sync.WaitGroup
	polls   int
}

// New returns a Sender. The error is that of ServerOptions.Validate.
func New(o Options) (*Sender, error) {
	server, err := newServer(o.Server)
	if err != nil {
		return nil, err
	}
	s := &Sender{
		server: server, store: o.Store, log: o.Log, metrics: newMetrics(o.Registerer), shutdownTimeout: o.ShutdownTimeout,
		pollInterval: pollInterval,
		free:         make(chan struct{}, workers), freed: loop.NewSignal(),
	}
	for range workers {
		s.free <- struct{}{}
	}
	return s, nil
}

// Run sends until ctx ends, then finishes the tries in progress. Those that take too long for that are aborted, and due again when their leases
// end.
func (s *Sender) Run(ctx context.Context) {
	tries, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	loop.Run(ctx, s.log, loop.Loop{
		Interval: s.pollInterval, Wake: s.freed, Step: func(ctx context.Context) (bool, error) { return false, s.poll(ctx, tries) },
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.running.Wait()
	}()
	for _, timeout := range []time.Duration{s.shutdownTimeout, abortTimeout} {
		select {
		case <-ended:
			return
		case <-time.After(timeout):
			abort()
		}
	}
}

// poll starts tries of receipts that are due, as many as there are free workers.
func (s *Sender) poll(ctx, tries context.Context) error {
	pending, err := s.store.Pending(ctx)
	if err != nil && len(pending) == 0 {
		return err
	}
	var all int64
	var due []receipts.Pending
	for _, bucket := range pending {
		all += bucket.All
		if bucket.Due > 0 {
			due = append(due, bucket)
		}
	}
	s.metrics.pending.Set(float64(all))
	s.polls++
	if len(due) > 0 { // no bucket is always the last
		first := s.polls % len(due)
		due = slices.Concat(due[first:], due[:first])
	}
	for i, bucket := range due {
		share := len(s.free) / (len(due) - i)
		if share == 0 {
			share = min(1, len(s.free))
		}
		if share == 0 {
			break
		}
		leased, leaseErr := s.store.Lease(ctx, bucket.Bucket, leaseTime, share)
		for _, receipt := range leased {
			<-s.free // nobody else takes one
			s.running.Go(func() {
				defer func() {
					s.free <- struct{}{}
					s.freed.Set()
				}()
				s.work(tries, receipt)
			})
		}
		err = errors.Join(err, leaseErr)
	}
	return err
}

// work makes one try of a leased receipt, and records what became of it.
func (s *Sender) work(ctx context.Context, leased receipts.Leased) {
	deadline := time.Now().Add(leaseTime)
	receipt, err := s.store.Read(ctx, leased)
	switch {
	case errors.Is(err, receipts.ErrNotOwed), errors.Is(err, redis.ErrCorrupt):
		s.end(ctx, leased, deadline, outcomeDropped)
		return
	case err != nil:
		s.log.RedisFailed(err) // it is due again when the lease ends
		return
	}
	message, ok := newMessage(s.server.from, &receipt.Session)
	if !ok {
		s.end(ctx, leased, deadline, outcomeDropped)
		return
	}
	trying, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	started := time.Now()
	tried := s.server.send(trying, message)
	if ctx.Err() != nil && tried.result != resultSent {
		return // aborted by the shutdown
	}
	s.metrics.attempted(tried.result, time.Since(started))
	switch {
	case tried.result == resultSent:
		s.end(ctx, leased, deadline, outcomeSent)
	case tried.result == resultRefused:
		s.log.Warn("dropped a receipt that the mail server refuses", "messageID", messageID(s.server.from, leased.ID), "code", tried.code, "error", tried.reason)
		s.end(ctx, leased, deadline, outcomeRefused)
	case receipt.Age >= giveUpAfter:
		s.log.Warn("dropped a receipt that could not be sent for three days", "messageID", messageID(s.server.from, leased.ID),
			"result", tried.result, "code", tried.code, "error", tried.reason)
		s.end(ctx, leased, deadline, outcomeExpired)
	default:
		s.logDelay(tried)
		s.record(ctx, deadline, func(ctx context.Context) error { return s.store.Defer(ctx, leased, retryDelay(receipt.Age)) })
	}
}

// logDelay logs why receipts wait, at most once a minute for each result.
func (s *Sender) logDelay(tried attempt) {
	if !s.log.Allow("receipts "+tried.result, time.Minute) {
		return
	}
	s.log.Warn("could not send a receipt; retrying", "result", tried.result, "code", tried.code, "error", tried.reason)
}

func (s *Sender) end(ctx context.Context, leased receipts.Leased, deadline time.Time, outcome string) {
	if s.record(ctx, deadline, func(ctx context.Context) error { return s.store.End(ctx, leased) }) {
		s.metrics.ended.WithLabelValues(outcome).Inc()
	}
}

// record writes what became of a try until its lease ends, because a mail without a recorded result is sent again. It reports whether that is
// done.
func (s *Sender) record(ctx context.Context, deadline time.Time, write func(context.Context) error) bool {
	err := loop.UntilRecorded(ctx, time.Now, deadline, write)
	if err != nil && !errors.Is(err, outbox.ErrLeaseLost) {
		s.log.RedisFailed(err)
	}
	return err == nil
}

// The bounds of the time to the next try.
const minRetry, maxRetry = time.Minute, 4 * time.Hour

// retryDelay is the time to the next try of a receipt: half its age, so nobody has to count tries. That makes about 30 within three days.
func retryDelay(age time.Duration) time.Duration {
	return jitter.Add(min(max(age/2, minRetry), maxRetry), jitter.Fraction())
}
