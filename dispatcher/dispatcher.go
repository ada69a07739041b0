package dispatcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// How often a dispatcher looks. Between two looks of its own there are those of its peers.
const (
	lookInterval    = 200 * time.Millisecond
	healthInterval  = 2 * time.Second
	backlogInterval = 15 * time.Second
	rotatedInterval = time.Second
	// outagePause is after which time a Redis that did not answer is asked again.
	outagePause = time.Second
)

const (
	// leaseBatch and sweepBatch bound how long one script holds Redis up.
	leaseBatch, sweepBatch = 64, 100
	// attemptMargin is what an attempt may take beyond its timeout, to be recorded while its lease lasts.
	attemptMargin = 2 * time.Second
	// redisTimeout is longer than that of the API, whose callers wait: events whose lease is granted in an answer that comes too
	// late wait until it ends. An outcome can be recorded again within the margin.
	redisTimeout = time.Second
	// waiting bounds the events that wait here for one endpoint, and waitingPlaces those for all, for each place. What finds no
	// room is leased again and again, so there is room for what a quick endpoint takes in some seconds.
	waiting, waitingPlaces = 256, 16
)

// index knows where events go.
type index interface {
	Endpoint(merchantID string) endpoints.Endpoint
}

// sender makes one attempt.
type sender interface {
	Send(ctx context.Context, request delivery.Request) delivery.Result
}

// reporter passes on to people how an endpoint fares.
type reporter interface {
	Report(ctx context.Context, endpoint endpoints.Endpoint, health health) error
}

// dispatcher is one of any number that share a Redis. Every field but the tracer is required.
type dispatcher struct {
	options   Options
	store     *store.Store
	index     index
	sender    sender
	reporter  reporter
	rotations *rotations
	metrics   *metrics
	tracer    *tracing.Tracer // nil: nothing is traced
	// holder names this dispatcher in its leases.
	holder string
	now    func() time.Time

	work  *work
	lanes *lanes
	// attempts is the context of attempts, and records of what is written of them: an attempt can be cut off, and what
	// came of it is still to be written then.
	attempts, records context.Context
	// healthNews asks to pass on at once how endpoints fare.
	healthNews chan struct{}
	logged     throttle
}

// prepare fills what follows from the rest. The attempts live until ctx ends.
func (d *dispatcher) prepare(ctx context.Context) {
	d.attempts, d.records = ctx, context.WithoutCancel(ctx)
	d.healthNews = make(chan struct{}, 1)
	d.work = newWork()
	d.logged = throttle{now: d.now, last: map[string]time.Time{}}
	d.lanes = &lanes{
		limits: lanesLimits{
			perEndpoint: d.options.Concurrency,
			inAll:       d.options.MaxInFlight,
			queue:       waiting,
			queued:      waitingPlaces * d.options.MaxInFlight,
		},
		now:     d.now,
		attempt: d.attempt,
		putOff:  d.putOff,
		lanes:   map[string]*lane{},
	}
	d.metrics.registerInFlight(d.lanes.underWay)
}

// lastWords is what the record of an attempt may take that was cut off.
const lastWords = 2 * time.Second

var errCutOff = errors.New("attempts under way were cut off")

// run works until ctx ends, then finishes the attempts under way and hands back what has not begun. With errCutOff
// attempts took too long for that; their events come due again.
func (d *dispatcher) run(ctx context.Context) error {
	attempts, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	d.prepare(attempts)
	d.loops(ctx)

	d.lanes.close()
	if d.lanes.await(d.options.ShutdownTimeout) {
		return nil
	}
	cutOff()
	d.lanes.await(lastWords)
	return errCutOff
}

// loops run until ctx ends. Those of the buckets sleep until a look finds something for them to do.
func (d *dispatcher) loops(ctx context.Context) {
	var loops sync.WaitGroup
	for i := range session.Buckets {
		bucket := session.Bucket(i)
		loops.Go(func() {
			d.loop(ctx, asleep, d.work.lease[i], func(ctx context.Context) (bool, error) { return d.lease(ctx, bucket) })
		})
		loops.Go(func() {
			d.loop(ctx, asleep, d.work.sweep[i], func(ctx context.Context) (bool, error) { return d.sweep(ctx, bucket) })
		})
	}
	loops.Go(func() { d.loop(ctx, lookInterval, nil, d.look) })
	loops.Go(func() { d.loop(ctx, healthInterval, d.healthNews, d.reportHealth) })
	loops.Go(func() { d.loop(ctx, rotatedInterval, d.rotations.news, d.recordRotations) })
	loops.Go(func() { d.loop(ctx, backlogInterval, nil, d.countBacklog) })
	loops.Wait()
}

// asleep is the interval of a loop that works only when it is woken.
const asleep time.Duration = 0

// loop does a step again and again until ctx ends: at once when the step says that there is more, else after the
// interval, or when it is woken.
func (d *dispatcher) loop(ctx context.Context, interval time.Duration, wake <-chan struct{},
	step func(context.Context) (more bool, err error),
) {
	// Dispatchers that were started together would else all look at the same moment.
	timer := time.NewTimer(time.Duration(drawLot() * float64(interval)))
	defer timer.Stop()
	if interval == asleep {
		timer.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		more, err := step(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			d.couldNotWork(err)
			timer.Reset(max(interval, outagePause))
		case more:
			timer.Reset(0)
		case interval != asleep:
			timer.Reset(later(interval, drawLot())) // nor should they fall into step
		}
	}
}
