package dispatcher

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/holder"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/dispatcher/queue"
	"github.com/merchant-operator/merchant-operator/dispatcher/status"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// reasonEncodeError is the dead letter's reason for an event without a body.
const reasonEncodeError = "encode_error"

// deliverer makes attempts, and records what becomes of leased events: it is the queue.Worker. All but the tracer is required.
type deliverer struct {
	options Options
	outbox  *outbox.Outbox
	sender  sender
	index   index
	metrics *metrics
	tracer  *tracing.Tracer // nil: no tracing
	now     func() time.Time
	log     *loop.Log
	holders holder.Set
	// healthChanged starts a health report at once.
	healthChanged loop.Signal
}

// sender makes one attempt.
type sender interface {
	Send(ctx context.Context, request delivery.Request) delivery.Result
}

// Attempt sends an event once and records the result. ctx aborts the request; the result is still recorded then.
func (d *deliverer) Attempt(ctx context.Context, j queue.Job) queue.Result {
	event, from := j.Lease.Event, d.holders.In(j.Lease.Event.Bucket())
	if !from.Await(ctx, j.Holder, j.StartBy) {
		d.Defer(ctx, 0, queue.DeferredBusy, j)
		return queue.Inconclusive
	}
	body, err := feed.Encode(event)
	if err != nil {
		d.log.Error("could not encode an event; it is now a dead letter", "event", feed.HashID(event.ID), "error", err)
		d.deadLetter(context.WithoutCancel(ctx), j.Lease, outbox.Details{Reason: reasonEncodeError, Merchant: j.Endpoint.Merchant.String()})
		return queue.Inconclusive
	}
	started := d.now()
	if j.Lease.Attempts == 0 && !event.TestMode {
		d.metrics.firstLag.Observe(max(0, started.Sub(j.Occurred)).Seconds())
	}
	ctx, span := d.tracer.StartAttempt(ctx, string(event.Kind), j.Lease.Attempts)
	result := d.sender.Send(ctx, delivery.Request{
		URL: j.Endpoint.URL, ID: event.ID, Body: body, Secrets: j.Endpoint.Secrets,
		Ready: func() bool { return from.Valid(j.Holder) },
		Now:   j.RedisNow.Add(started.Sub(j.Asked)), // receivers refuse a timestamp that is minutes off, as this machine's clock may be
	})
	span.EndAttempt(result.Reason, result.Status, result.Outcome == delivery.Delivered)
	took := d.now().Sub(started)
	d.metrics.attempted(event, result.Reason, took)
	if outbox.IsWebhookTest(event) && result.Reason != delivery.ReasonInterrupted {
		d.answerWebhookTest(ctx, j, result, took)
	}
	switch {
	case result.Outcome == delivery.Delivered:
		if d.record(ctx, j, func(ctx context.Context) error {
			return d.outbox.RecordDelivery(ctx, j.Lease, j.Endpoint.Noted(d.index.Age()))
		}) {
			d.metrics.finished(event, outcomeDelivered)
		}
		return queue.Succeeded
	case result.Reason == delivery.ReasonInterrupted && ctx.Err() == nil: // the lease may be lost
		d.Defer(ctx, 0, queue.DeferredBusy, j)
		return queue.Inconclusive
	case result.Reason == delivery.ReasonInterrupted: // by the shutdown
		d.Defer(ctx, 0, queue.DeferredStopping, j)
		return queue.Inconclusive
	}
	if d.index.Endpoint(event.MerchantID).Target != j.Endpoint.Target { // a 410 of the former URL must not disable the present one
		d.Defer(ctx, 0, deferredChanged, j)
		return queue.Inconclusive
	}
	return d.recordFailure(ctx, j, result, took)
}

// answerWebhookTest keeps the answer to a test event for the person who asked for it. Without Redis they see that there is none.
func (d *deliverer) answerWebhookTest(ctx context.Context, j queue.Job, result delivery.Result, took time.Duration) {
	answer := outbox.Attempt{Reason: result.Reason, Answer: result.Answer(), Took: took}
	if err := d.outbox.AnswerWebhookTest(context.WithoutCancel(ctx), j.Lease.Event, j.Endpoint.Target, answer); err != nil {
		d.log.RedisFailed(err)
	}
}

func (d *deliverer) recordFailure(ctx context.Context, j queue.Job, result delivery.Result, took time.Duration) queue.Result {
	retry, ok := d.options.Schedule.Next(j.Lease.Attempts+1, result.RetryAfter, jitter.Fraction())
	if !ok || outbox.IsWebhookTest(j.Lease.Event) {
		retry = -1
	}
	reason, permanent := status.FailureReason(result)
	failure := outbox.Failure{
		Details:      outbox.Details{Reason: result.Reason, Answer: result.Answer(), Merchant: j.Endpoint.Merchant.String()},
		Retry:        retry,
		Gone:         result.Outcome == delivery.Gone,
		Target:       j.Endpoint.Noted(d.index.Age()),
		FailingLimit: d.options.FailingLimit,
		Health:       reason,
		Permanent:    permanent,
		Took:         took,
	}
	var effect outbox.Failed
	recorded := d.record(ctx, j, func(ctx context.Context) (err error) {
		effect, err = d.outbox.RecordFailure(ctx, j.Lease, failure)
		return err
	})
	if !recorded {
		return queue.Failed
	}
	if effect.Outdated { // its URL is a former one
		d.metrics.deferral(j.Lease.Event, deferredChanged)
		return queue.Inconclusive
	}
	if effect.DeadLettered {
		d.metrics.deadLettered(j.Lease.Event, result.Reason)
	}
	if effect.Dropped {
		d.metrics.finished(j.Lease.Event, outcomeDead)
	}
	if effect.Disabled {
		cause := outbox.EndpointFailing
		if failure.Gone {
			cause = outbox.EndpointGone
		}
		d.log.Warn("disabled an endpoint", "merchantID", j.Lease.Event.MerchantID, "reason", result.Reason)
		d.metrics.endpointsDisabled.WithLabelValues(cause).Inc()
		d.healthChanged.Set()
	}
	return queue.Failed
}

// recordPause is the time until a result that Redis did not take is written again.
const recordPause = 250 * time.Millisecond

// record writes the result of an attempt until its lease ends, because an attempt without a recorded result is
// repeated. It reports whether that is done. A second write, if only the answer of the first was lost, is found stale.
func (d *deliverer) record(ctx context.Context, j queue.Job, write func(context.Context) error) bool {
	for {
		err := write(context.WithoutCancel(ctx))
		switch {
		case err == nil:
			return true
		case errors.Is(err, outbox.ErrLeaseLost):
			d.metrics.leasesLost.Inc()
			return false
		case !errors.Is(err, redis.ErrUnavailable), !d.now().Before(j.LeaseEnd), !loop.Pause(ctx, recordPause):
			d.log.Error("could not record the result of an attempt; the attempt will be repeated", "event", feed.HashID(j.Lease.Event.ID), "error", err)
			return false
		}
	}
}

func (d *deliverer) deadLetter(ctx context.Context, lease outbox.Lease, details outbox.Details) {
	if d.finish(ctx, lease, func(ctx context.Context, lease outbox.Lease) error {
		return d.outbox.DeadLetter(ctx, lease, details)
	}) {
		d.metrics.deadLettered(lease.Event, details.Reason)
	}
}

// finish ends a leased event and reports whether that is done. If not, the event is due again when its lease ends.
func (d *deliverer) finish(ctx context.Context, lease outbox.Lease, end func(context.Context, outbox.Lease) error) bool {
	err := end(ctx, lease)
	switch {
	case errors.Is(err, outbox.ErrLeaseLost):
		d.metrics.leasesLost.Inc()
	case err != nil:
		d.log.Error("could not finish an event; retrying when its lease ends", "event", feed.HashID(lease.Event.ID), "error", err)
	}
	return err == nil
}

// Defer releases events that wait here, to be due after the delay.
func (d *deliverer) Defer(ctx context.Context, delay time.Duration, reason string, jobs ...queue.Job) {
	ctx = context.WithoutCancel(ctx)
	byBucket := map[session.Bucket][]outbox.Deferral{}
	for _, j := range jobs {
		d.metrics.deferral(j.Lease.Event, reason)
		bucket := j.Lease.Event.Bucket()
		byBucket[bucket] = append(byBucket[bucket], outbox.Deferral{Lease: j.Lease, Delay: jitter.Add(delay, jitter.Fraction())})
	}
	for bucket, deferrals := range byBucket {
		for batch := range slices.Chunk(deferrals, leaseBatch) {
			if err := d.outbox.Defer(ctx, bucket, batch...); err != nil {
				d.log.RedisFailed(err) // they are due when their leases end
			}
		}
	}
}
