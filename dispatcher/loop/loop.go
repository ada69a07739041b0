// Package loop repeats the steps of a dispatcher.
package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// errorPause is the least time until the next try after an error of Redis.
const errorPause = time.Second

// Loop repeats a step.
type Loop struct {
	Interval time.Duration
	// Pause, unless it is nil, says after a step how long to wait instead.
	Pause func() time.Duration
	// Wake runs the step at once; nil: nothing does.
	Wake Signal
	// Step reports more work to be repeated at once. Its error is of Redis.
	Step func(context.Context) (more bool, err error)
}

// Run repeats the steps until ctx ends, and waits for those in progress.
func Run(ctx context.Context, log *Log, loops ...Loop) {
	var running sync.WaitGroup
	for _, one := range loops {
		running.Go(func() { one.run(ctx, log) })
	}
	running.Wait()
}

func (l Loop) run(ctx context.Context, log *Log) {
	// Without jitter, dispatchers that were started together would poll together.
	timer := time.NewTimer(jitter.UpTo(l.Interval))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.Wake:
		case <-timer.C:
		}
		more, err := l.Step(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			log.RedisFailed(err)
			timer.Reset(max(l.Interval, errorPause))
		case more:
			timer.Reset(0)
		case l.Pause != nil:
			timer.Reset(l.Pause())
		default:
			timer.Reset(jitter.Add(l.Interval, jitter.Fraction()))
		}
	}
}

// Signal runs the step of a loop once more.
type Signal chan struct{}

// NewSignal returns a Signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set requests one more run, unless that is requested already.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// recordPause is the time until a result that Redis did not take is written again.
const recordPause = 250 * time.Millisecond

// UntilRecorded writes the result of leased work until Redis takes it, the lease ends by the clock now, or ctx does. write is not aborted. It returns
// the error of the last write.
func UntilRecorded(ctx context.Context, now func() time.Time, leaseEnd time.Time, write func(context.Context) error) error {
	for {
		err := write(context.WithoutCancel(ctx))
		if !errors.Is(err, redis.ErrUnavailable) || !now().Before(leaseEnd) || !Pause(ctx, recordPause) {
			return err
		}
	}
}

// Pause reports whether ctx lasts longer than the pause.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
