package dispatcher

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

const (
	pollInterval     = 200 * time.Millisecond
	healthInterval   = 2 * time.Second
	changesInterval  = time.Second
	backlogInterval  = 15 * time.Second
	rotationInterval = time.Second
	// errorPause is the time until the next try after an error of Redis.
	errorPause = time.Second
)

const (
	// leaseBatch and sweepBatch bound how long one script blocks Redis.
	leaseBatch, sweepBatch = 64, 100
	// attemptMargin is the time after an attempt's timeout to record its result before the lease ends.
	attemptMargin = 2 * time.Second
	// redisTimeout is longer than the API's, whose callers wait: events whose lease was granted in an answer that comes
	// too late wait until it ends. A result can be recorded again within the margin.
	redisTimeout = time.Second
	// jobsPerAttempt bounds the events that wait here, of one endpoint and of all, for each attempt that may be in progress.
	// A quick endpoint works them off in a fraction of a second.
	jobsPerAttempt = 16
	// abortTimeout is the time to record attempts that were aborted.
	abortTimeout = 2 * time.Second
)

// index knows where events go, and which keys are published.
type index interface {
	Endpoint(merchantID string) endpoints.Endpoint
	KeyIDs(bucket session.Bucket) []string
	MerchantIDs(bucket session.Bucket) []string
	HasKey(keyID string) bool
	Allowlist(merchantID string) allowlist.List
}

// sender makes one attempt.
type sender interface {
	Send(ctx context.Context, request delivery.Request) delivery.Result
}

// reporter reports through the Kubernetes API.
type reporter interface {
	// Report reports the health of an endpoint to its merchant.
	Report(ctx context.Context, endpoint endpoints.Endpoint, made report) error
	// ReportTest reports that the test of an endpoint was queued.
	ReportTest(ctx context.Context, endpoint endpoints.Endpoint) error
	// ReportAllowlist reports the blocked addresses of an endpoint's merchant.
	ReportAllowlist(ctx context.Context, endpoint endpoints.Endpoint, blocked *v1alpha1.AllowlistStatus) error
	// UpdateLastUses lets merge change the published last uses of a shard, and writes them if it says so.
	UpdateLastUses(ctx context.Context, shard int, merge func(published map[string]time.Time) bool) error
}

// dispatcher is one of any number that share a Redis. Every field of the first group but the tracer is required; prepare
// fills the others.
type dispatcher struct {
	options   Options
	redis     *redis.Client
	outbox    *outbox.Outbox
	store     *store.Store // to sweep, and to read last uses of keys
	index     index
	sender    sender
	reporter  reporter
	rotations *rotations
	changes   *changes
	metrics   *metrics
	tracer    *tracing.Tracer // nil: no tracing
	identity  string          // names this dispatcher in its leases
	now       func() time.Time

	queues *endpointQueues
	held   holds
	// leasing and sweeping are the buckets with such work in progress.
	leasing, sweeping [session.Buckets]atomic.Bool
	workers           sync.WaitGroup
	polls             int
	// healthChanged starts a health report at once.
	healthChanged chan struct{}
	// drained starts a poll at once, because there is room for more events of an endpoint.
	drained chan struct{}
	// nextReport, nextBlocked and nextRefresh are the buckets with which the next round of reports begins.
	nextReport, nextBlocked, nextRefresh session.Bucket

	lastUses lastUses
	logged   throttle
}

func (d *dispatcher) prepare() {
	d.healthChanged, d.drained = make(chan struct{}, 1), make(chan struct{}, 1)
	d.logged = throttle{now: d.now, last: map[string]time.Time{}}
	d.queues = &endpointQueues{
		limits: queueLimits{
			endpointAttempts: d.options.Concurrency,
			attempts:         d.options.MaxInFlight,
			jobsPerAttempt:   jobsPerAttempt,
		},
		now:       d.now,
		attempt:   d.attempt,
		deferJobs: d.deferJobs,
		drained:   func() { wake(d.drained) },
		tenants:   map[string]*tenant{},
	}
	d.metrics.registerInFlight(d.queues.attemptsInFlight)
	d.metrics.registerDropped(d.outbox.DroppedDeadLetters)
}

var errAborted = errors.New("shutdown timeout: aborted attempts in progress")

// run works until ctx ends, then finishes the attempts in progress and releases events that wait here. With errAborted
// attempts took too long for that; their events are due again.
func (d *dispatcher) run(ctx context.Context) error {
	attempts, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	d.prepare()
	d.loops(ctx, attempts)

	d.queues.close(attempts)
	if d.queues.wait(d.options.ShutdownTimeout) {
		return nil
	}
	abort()
	d.queues.wait(abortTimeout)
	return errAborted
}

// loops run until ctx ends. Attempts end with a context of their own.
func (d *dispatcher) loops(ctx, attempts context.Context) {
	d.workers.Go(func() {
		d.loop(ctx, pollInterval, d.drained, func(ctx context.Context) (bool, error) { return false, d.poll(ctx, attempts) })
	})
	d.workers.Go(func() { d.loop(ctx, healthInterval, d.healthChanged, d.reportHealth) })
	d.workers.Go(func() { d.loop(ctx, refreshInterval, nil, d.refreshHealth) })
	d.workers.Go(func() { d.loop(ctx, changesInterval, d.changes.added, d.handleChanges) })
	d.workers.Go(func() { d.loop(ctx, rotationInterval, d.rotations.added, d.recordRotations) })
	d.workers.Go(func() { d.loop(ctx, backlogInterval, nil, d.countBacklog) })
	d.workers.Go(func() { d.loop(ctx, d.options.LastUseInterval, nil, d.publishLastUses) })
	d.workers.Wait()
}

// loop repeats a step until ctx ends: at once if the step reports more work, else after the interval or when woken.
func (d *dispatcher) loop(ctx context.Context, interval time.Duration, wake <-chan struct{},
	step func(context.Context) (more bool, err error),
) {
	// Without jitter, dispatchers that were started together would poll together.
	timer := time.NewTimer(jitter.UpTo(interval))
	defer timer.Stop()
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
			d.logRedisError(err)
			timer.Reset(max(interval, errorPause))
		case more:
			timer.Reset(0)
		default:
			timer.Reset(jitter.Add(interval, jitter.Fraction()))
		}
	}
}

// wake runs a loop's step once more, unless that is requested already.
func wake(loop chan<- struct{}) {
	select {
	case loop <- struct{}{}:
	default:
	}
}

// throttle limits how often the same message is logged.
type throttle struct {
	now func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // by message
}

// allow reports whether the message, one of a closed list, was last logged at least an interval ago.
func (t *throttle) allow(message string, interval time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if now.Sub(t.last[message]) < interval {
		return false
	}
	t.last[message] = now
	return true
}

func (d *dispatcher) logRedisError(err error) {
	const interval = 10 * time.Second
	if d.logged.allow("redis", interval) {
		d.options.Log.Error("could not process events; retrying", "error", err)
	}
}
