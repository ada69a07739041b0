package attempt

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/dispatcher/status"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// MaxDuration is how long an attempt takes at most, with the time to record its result before the lease ends.
const MaxDuration = delivery.Timeout + 2*time.Second

// Batch is how many events a script leases or defers at most: it bounds for how long the script blocks Redis.
const Batch = 64

// Job is a leased event and its endpoint.
type Job struct {
	Lease      outbox.Lease
	Holder     Holder
	HolderName string // the name that the lease is under
	Endpoint   endpoints.Endpoint
	// Asked is when the lease was requested, by this program's clock, and RedisNow is the same time by the clock of Redis.
	Asked, RedisNow time.Time
	// Occurred is the time of the event, by this program's clock.
	Occurred time.Time
	// StartBy is the last time to start an attempt that ends before the lease, at LeaseEnd.
	StartBy, LeaseEnd time.Time
}

// Holder knows whether leases under its name may be used.
type Holder interface {
	// Await waits until they may. It reports false if they never may, or not in time.
	Await(ctx context.Context, name string, until time.Time) bool
	// Valid reports whether they may be used now.
	Valid(name string) bool
}

// Result is what an attempt says about its endpoint.
type Result int

// The results of attempts. An Inconclusive one says nothing about the endpoint.
const (
	Inconclusive Result = iota
	Succeeded
	Failed
)

// Worker decides about leased events, makes attempts, and records what becomes of the events. All but the tracer is required.
type Worker struct {
	Outbox *outbox.Outbox
	Sender Sender
	Index  Index
	// Next returns the time to the next attempt after this many failed ones, with a random fraction of jitter; false: there is none.
	Next func(failed int, retryAfter time.Duration, fraction float64) (time.Duration, bool)
	// FailingLimit is how long an endpoint may only fail before it is disabled.
	FailingLimit time.Duration
	// HealthChanged starts a health report at once.
	HealthChanged loop.Signal
	Metrics       *Metrics
	Tracer        *tracing.Tracer // nil: no tracing
	Now           func() time.Time
	Log           *loop.Log
}

// Sender makes one attempt.
type Sender interface {
	Send(ctx context.Context, request delivery.Request) delivery.Result
}

// Index knows where events go.
type Index interface {
	Endpoint(merchantID string) endpoints.Endpoint
	// Age is how long ago the watches gave the last sign of life.
	Age() time.Duration
}

// Decide says what to do with a leased event, and returns its endpoint; now is the time of Redis. While the watch is frozen it drops nothing,
// makes no dead letters, and resumes no endpoint. Events are left to a dispatcher that knows a newer target.
func (w *Worker) Decide(lease outbox.Lease, now time.Time) (Decision, endpoints.Endpoint) {
	age := w.Index.Age() // read first: the endpoint is not older
	endpoint := w.Index.Endpoint(lease.Event.MerchantID)
	decided := decide(lease, endpoint, now)
	if decided.Action != Defer && lease.Endpoint.Outdates(endpoint.Noted(age), now) {
		return Decision{Defer, deferredChanged, deferralDelay(now.Sub(lease.Event.OccurredAt))}, endpoint
	}
	if age > endpoints.MaxAge && (decided.Action == Drop || decided.Action == DeadLetter || decided.Action == Resume) {
		decided = Decision{Defer, deferredFrozen, deferralDelay(now.Sub(lease.Event.OccurredAt))}
	}
	return decided, endpoint
}

// Attempt sends an event once and records the result. ctx aborts the request; the result is still recorded then.
func (w *Worker) Attempt(ctx context.Context, j Job) Result {
	if !j.Holder.Await(ctx, j.HolderName, j.StartBy) {
		return w.release(ctx, j, DeferredBusy)
	}
	body, err := feed.Encode(j.Lease.Event)
	if err != nil {
		w.Log.Error("could not encode an event; it is now a dead letter", "event", feed.HashID(j.Lease.Event.ID), "error", err)
		w.DeadLetter(context.WithoutCancel(ctx), j.Lease, outbox.Details{Reason: reasonEncodeError, Merchant: j.Endpoint.Merchant.String()})
		return Inconclusive
	}
	ctx, span := w.Tracer.StartAttempt(ctx, string(j.Lease.Event.Kind), j.Lease.Attempts)
	result, took := w.send(ctx, j, body)
	span.EndAttempt(result.Reason, result.Status, result.Outcome == delivery.Delivered)
	return w.record(ctx, j, result, took)
}

// send sends the event and returns how long that took.
func (w *Worker) send(ctx context.Context, j Job, body []byte) (result delivery.Result, took time.Duration) {
	started := w.Now()
	if j.Lease.Attempts == 0 && !j.Lease.Event.TestMode {
		w.Metrics.firstLag.Observe(max(0, started.Sub(j.Occurred)).Seconds())
	}
	result = w.Sender.Send(ctx, delivery.Request{
		URL: j.Endpoint.URL, ID: j.Lease.Event.ID, Body: body, Secrets: j.Endpoint.Secrets,
		Ready: func() bool { return j.Holder.Valid(j.HolderName) },
		Now:   j.RedisNow.Add(started.Sub(j.Asked)), // receivers refuse a timestamp that is minutes off, as this machine's clock may be
	})
	took = w.Now().Sub(started)
	w.Metrics.attempted(j.Lease.Event, result.Reason, took)
	return result, took
}

// record records the result of an attempt.
func (w *Worker) record(ctx context.Context, j Job, result delivery.Result, took time.Duration) Result {
	event := j.Lease.Event
	if outbox.IsWebhookTest(event) && result.Reason != delivery.ReasonInterrupted {
		w.recordAnswer(ctx, j, result, took)
	}
	switch {
	case result.Outcome == delivery.Delivered:
		if w.untilRecorded(ctx, j, func(ctx context.Context) error {
			return w.Outbox.RecordDelivery(ctx, j.Lease, j.Endpoint.Noted(w.Index.Age()))
		}) {
			w.Metrics.finished(event, outcomeDelivered)
		}
		return Succeeded
	case result.Reason == delivery.ReasonInterrupted && ctx.Err() == nil: // the lease may be lost
		return w.release(ctx, j, DeferredBusy)
	case result.Reason == delivery.ReasonInterrupted: // by the shutdown
		return w.release(ctx, j, DeferredStopping)
	case w.Index.Endpoint(event.MerchantID).Target != j.Endpoint.Target: // a 410 of the former URL must not disable the present one
		return w.release(ctx, j, deferredChanged)
	}
	return w.recordFailure(ctx, j, result, took)
}

// recordAnswer keeps the answer to a test event for the person who asked for it. Without Redis they see that there is none.
func (w *Worker) recordAnswer(ctx context.Context, j Job, result delivery.Result, took time.Duration) {
	answer := outbox.Attempt{Reason: result.Reason, Answer: result.Answer(), Took: took}
	if err := w.Outbox.AnswerWebhookTest(context.WithoutCancel(ctx), j.Lease.Event, j.Endpoint.Target, answer); err != nil {
		w.Log.RedisFailed(err)
	}
}

func (w *Worker) recordFailure(ctx context.Context, j Job, result delivery.Result, took time.Duration) Result {
	retry, ok := w.Next(j.Lease.Attempts+1, result.RetryAfter, jitter.Fraction())
	if !ok || outbox.IsWebhookTest(j.Lease.Event) {
		retry = -1
	}
	reason, permanent := status.FailureReason(result)
	failure := outbox.Failure{
		Details:      outbox.Details{Reason: result.Reason, Answer: result.Answer(), Merchant: j.Endpoint.Merchant.String()},
		Retry:        retry,
		Gone:         result.Outcome == delivery.Gone,
		Target:       j.Endpoint.Noted(w.Index.Age()),
		FailingLimit: w.FailingLimit,
		Health:       reason,
		Permanent:    permanent,
		Took:         took,
	}
	var effect outbox.Failed
	if !w.untilRecorded(ctx, j, func(ctx context.Context) (err error) {
		effect, err = w.Outbox.RecordFailure(ctx, j.Lease, failure)
		return err
	}) {
		return Failed
	}
	if effect.Outdated { // its URL is a former one
		w.Metrics.Deferred(j.Lease.Event, deferredChanged)
		return Inconclusive
	}
	if effect.DeadLettered {
		w.Metrics.DeadLettered(j.Lease.Event, result.Reason)
	}
	if effect.Dropped {
		w.Metrics.finished(j.Lease.Event, outcomeDead)
	}
	if effect.Disabled {
		w.Log.Warn("disabled an endpoint", "merchantID", j.Lease.Event.MerchantID, "reason", result.Reason)
		cause := outbox.EndpointFailing
		if failure.Gone {
			cause = outbox.EndpointGone
		}
		w.Metrics.endpointsDisabled.WithLabelValues(cause).Inc()
		w.HealthChanged.Set()
	}
	return Failed
}

// untilRecorded writes the result of an attempt until its lease ends, because an attempt without a recorded result is
// repeated. It reports whether that is done. A second write, if only the answer of the first was lost, is found stale.
func (w *Worker) untilRecorded(ctx context.Context, j Job, write func(context.Context) error) bool {
	err := loop.UntilRecorded(ctx, w.Now, j.LeaseEnd, write)
	switch {
	case errors.Is(err, outbox.ErrLeaseLost):
		w.Metrics.leasesLost.Inc()
	case err != nil:
		w.Log.Error("could not record the result of an attempt; the attempt will be repeated", "event", feed.HashID(j.Lease.Event.ID), "error", err)
	}
	return err == nil
}

// Drop ends an event that its merchant does not want, and reports whether that is done.
func (w *Worker) Drop(ctx context.Context, lease outbox.Lease, outcome string) bool {
	dropped := w.finish(lease, w.Outbox.Drop(ctx, lease))
	if dropped {
		w.Metrics.finished(lease.Event, outcome)
	}
	return dropped
}

// DeadLetter gives an event up.
func (w *Worker) DeadLetter(ctx context.Context, lease outbox.Lease, details outbox.Details) {
	if w.finish(lease, w.Outbox.DeadLetter(ctx, lease, details)) {
		w.Metrics.DeadLettered(lease.Event, details.Reason)
	}
}

// finish reports whether a leased event was ended. If not, the event is due again when its lease ends.
func (w *Worker) finish(lease outbox.Lease, err error) bool {
	switch {
	case errors.Is(err, outbox.ErrLeaseLost):
		w.Metrics.leasesLost.Inc()
	case err != nil:
		w.Log.Error("could not finish an event; retrying when its lease ends", "event", feed.HashID(lease.Event.ID), "error", err)
	}
	return err == nil
}

// Resume enables an endpoint again whose target is another one than the disabled one, and reports whether that is done.
func (w *Worker) Resume(ctx context.Context, lease outbox.Lease, endpoint endpoints.Endpoint) bool {
	if _, err := w.Outbox.ResumeEndpoint(ctx, lease.Event.MerchantID, endpoint.Noted(w.Index.Age())); err != nil {
		w.Log.RedisFailed(err)
		return false
	}
	w.HealthChanged.Set()
	return true
}

// release defers an event whose attempt says nothing about the endpoint. The event is due at once.
func (w *Worker) release(ctx context.Context, j Job, reason string) Result {
	w.Defer(ctx, 0, reason, j)
	return Inconclusive
}

// Defer releases events that wait here, to be due after the delay.
func (w *Worker) Defer(ctx context.Context, delay time.Duration, reason string, jobs ...Job) {
	ctx = context.WithoutCancel(ctx)
	byBucket := map[session.Bucket][]outbox.Deferral{}
	for _, j := range jobs {
		w.Metrics.Deferred(j.Lease.Event, reason)
		bucket := j.Lease.Event.Bucket()
		byBucket[bucket] = append(byBucket[bucket], outbox.Deferral{Lease: j.Lease, Delay: jitter.Add(delay, jitter.Fraction())})
	}
	for bucket, deferrals := range byBucket {
		for batch := range slices.Chunk(deferrals, Batch) {
			if err := w.Outbox.Defer(ctx, bucket, batch...); err != nil {
				w.Log.RedisFailed(err) // they are due when their leases end
			}
		}
	}
}
