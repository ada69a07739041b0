package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// reasonEncodeError is the dead letter's reason for an event without a body.
const reasonEncodeError = "encode_error"

// attempt sends an event once and records the result. ctx aborts the request; the result is still recorded then.
func (d *dispatcher) attempt(ctx context.Context, j job) attemptResult {
	event := j.lease.Event
	body, err := delivery.Encode(event)
	if err != nil {
		d.options.Log.Error("could not encode an event; it is now a dead letter", "eventID", event.ID, "error", err)
		d.deadLetter(context.WithoutCancel(ctx), j.lease, outbox.Details{Reason: reasonEncodeError, Merchant: j.endpoint.Merchant.String()})
		return inconclusive
	}
	started := d.now()
	if j.lease.Attempts == 0 && !event.TestMode {
		d.metrics.firstLag.Observe(max(0, started.Sub(j.occurred)).Seconds())
	}
	ctx, span := d.tracer.StartAttempt(ctx, string(event.Kind), j.lease.Attempts)
	result := d.sender.Send(ctx, delivery.Request{
		URL: j.endpoint.URL, ID: event.ID, Body: body, Secrets: j.endpoint.Secrets,
		Now: j.redisNow.Add(started.Sub(j.asked)), // receivers refuse a timestamp that is minutes off, as this machine's clock may be
	})
	span.EndAttempt(result.Reason, result.Status, result.Outcome == delivery.Delivered)
	d.metrics.attempted(event, result.Reason, d.now().Sub(started))
	switch {
	case result.Outcome == delivery.Delivered:
		if d.record(ctx, j, func(ctx context.Context) error { return d.outbox.Delivered(ctx, j.lease, j.endpoint.Target) }) {
			d.metrics.finished(event, outcomeDelivered)
		}
		return succeeded
	case result.Reason == delivery.ReasonInterrupted: // by the shutdown
		d.deferJobs(ctx, 0, deferredStopping, j)
		return inconclusive
	}
	d.recordFailure(ctx, j, result)
	return failed
}

func (d *dispatcher) recordFailure(ctx context.Context, j job, result delivery.Result) {
	retry, ok := d.options.Schedule.Next(j.lease.Attempts+1, result.RetryAfter, jitter.Fraction())
	if !ok {
		retry = -1
	}
	reason, permanent := causeOf(result)
	failure := outbox.Failure{
		Details:      outbox.Details{Reason: result.Reason, Answer: result.Answer(), Merchant: j.endpoint.Merchant.String()},
		Retry:        retry,
		Gone:         result.Outcome == delivery.Gone,
		Target:       j.endpoint.Target,
		FailingLimit: d.options.FailingLimit,
		Health:       reason,
		Permanent:    permanent,
	}
	var effect outbox.Failed
	recorded := d.record(ctx, j, func(ctx context.Context) (err error) {
		effect, err = d.outbox.Failed(ctx, j.lease, failure)
		return err
	})
	if !recorded {
		return
	}
	if effect.DeadLettered {
		d.metrics.deadLettered(j.lease.Event, result.Reason)
	}
	if effect.Dropped {
		d.metrics.finished(j.lease.Event, outcomeDead)
	}
	if effect.Disabled {
		cause := outbox.EndpointFailing
		if failure.Gone {
			cause = outbox.EndpointGone
		}
		d.options.Log.Warn("disabled an endpoint", "merchantID", j.lease.Event.MerchantID, "reason", result.Reason)
		d.metrics.endpointsDisabled.WithLabelValues(cause).Inc()
		wake(d.healthChanged)
	}
}

// recordPause is the time until a result that Redis did not take is written again.
const recordPause = 250 * time.Millisecond

// record writes the result of an attempt until its lease ends, because an attempt without a recorded result is
// repeated. It reports whether that is done. A second write, if only the answer of the first was lost, is found stale.
func (d *dispatcher) record(ctx context.Context, j job, write func(context.Context) error) bool {
	for {
		err := write(context.WithoutCancel(ctx))
		switch {
		case err == nil:
			return true
		case errors.Is(err, outbox.ErrLeaseLost):
			d.metrics.leasesLost.Inc()
			return false
		case !errors.Is(err, redis.ErrUnavailable), !d.now().Before(j.leaseEnd), !pause(ctx, recordPause):
			d.options.Log.Error("could not record the result of an attempt; the attempt will be repeated", "eventID", j.lease.Event.ID, "error", err)
			return false
		}
	}
}

// pause reports whether ctx lasts longer than the pause.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
