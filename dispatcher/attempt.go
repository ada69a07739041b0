package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// reasonUnspeakable is why an event is a dead letter that has no body.
const reasonUnspeakable = "unspeakable"

// recordPause is after which time an outcome is recorded again that Redis did not take.
const recordPause = 250 * time.Millisecond

// attempt sends an event once and records what came of it. It reports what that says of the endpoint.
func (d *dispatcher) attempt(p parcel) verdict {
	event := p.lease.Event
	body, err := delivery.Encode(event)
	if err != nil {
		d.options.Log.Error("an event has no body; it is a dead letter now", "eventID", event.ID, "error", err)
		d.bury(d.records, p.lease, reasonUnspeakable)
		return unknown
	}
	started := d.now()
	if p.lease.Attempts == 0 {
		d.metrics.firstLag.Observe(max(0, started.Sub(p.occurred)).Seconds())
	}
	ctx, span := d.tracer.Attempt(d.attempts, string(event.Kind), p.lease.Attempts)
	result := d.sender.Send(ctx, delivery.Request{
		URL: p.endpoint.URL, ID: event.ID, Body: body, Secrets: p.endpoint.Secrets, Now: started,
	})
	span.Sent(result.Reason, result.Status, result.Outcome == delivery.Delivered)
	d.metrics.attempted(result.Reason, d.now().Sub(started))
	switch {
	case result.Outcome == delivery.Delivered:
		d.record(p, func(ctx context.Context) error { return d.store.EventDelivered(span.In(ctx), p.lease) },
			func() { d.metrics.ended(event.Kind, outcomeDelivered) })
		return took
	case result.Reason == delivery.ReasonInterrupted: // this dispatcher was stopped, which says nothing
		d.putOff(0, deferredStopping, p)
		return unknown
	}
	d.fail(p, result, span)
	return failed
}

func (d *dispatcher) fail(p parcel, result delivery.Result, span tracing.Span) {
	retry, ok := d.options.Schedule.Next(p.lease.Attempts+1, result.RetryAfter, drawLot())
	if !ok {
		retry = -1
	}
	failure := store.Failure{
		Reason:       result.Reason,
		Retry:        retry,
		Gone:         result.Outcome == delivery.Gone,
		Target:       p.endpoint.Target,
		FailingLimit: d.options.FailingLimit,
	}
	var led store.Failed
	d.record(p, func(ctx context.Context) (err error) {
		led, err = d.store.EventFailed(span.In(ctx), p.lease, failure)
		return err
	}, func() {
		if led.Buried {
			d.metrics.buried(p.lease.Event.Kind, result.Reason)
		}
		if led.Disabled {
			d.options.Log.Warn("disabled an endpoint", "merchantID", p.lease.Event.MerchantID, "reason", result.Reason)
			d.metrics.disabledTotal.WithLabelValues(cause(failure.Gone)).Inc()
			d.wake()
		}
	})
}

func cause(gone bool) string {
	if gone {
		return store.EndpointGone
	}
	return store.EndpointFailing
}

// record writes the outcome of an attempt while its lease lasts, for an outcome that is lost is an attempt that is
// made again. A write whose answer was lost and that is written again is found stale.
func (d *dispatcher) record(p parcel, write func(context.Context) error, written func()) {
	for {
		err := write(d.records)
		switch {
		case err == nil:
			written()
			return
		case errors.Is(err, store.ErrLeaseLost):
			d.metrics.leasesLost.Inc()
			return
		case !errors.Is(err, store.ErrUnavailable), !d.now().Before(p.leaseEnd), !d.pause(recordPause):
			d.options.Log.Error("could not record an attempt; it will be made again", "eventID", p.lease.Event.ID, "error", err)
			return
		}
	}
}

// pause waits, and reports whether there is still time.
func (d *dispatcher) pause(after time.Duration) bool {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-d.attempts.Done():
		return false
	case <-timer.C:
		return true
	}
}
