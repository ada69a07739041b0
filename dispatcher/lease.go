package dispatcher

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// lease takes events of a bucket that are due and finds each its place.
func (d *dispatcher) lease(ctx context.Context, bucket session.Bucket) (more bool, err error) {
	// What was leased must be known here, so the answer is waited for even when ctx ends.
	ctx = context.WithoutCancel(ctx)
	asked := d.now()
	leased, err := d.store.LeaseEvents(ctx, bucket, store.LeaseRequest{Holder: d.holder, For: d.options.Lease, Limit: leaseBatch})
	for _, id := range leased.Unreadable {
		d.metrics.buried("", store.ReasonUnreadable)
		d.options.Log.Error("an event cannot be read; it is a dead letter now", "eventID", id)
	}
	if leased.Expired > 0 {
		d.metrics.expiredEvents(leased.Expired)
		d.options.Log.Error("events were not delivered within 30 days and are lost", "bucket", bucket, "events", leased.Expired)
	}
	var deferrals []store.Deferral
	for _, lease := range leased.Leases {
		after, why, taken := d.place(ctx, lease, leased.Now, asked)
		if !taken {
			d.metrics.deferred.WithLabelValues(why).Inc()
			deferrals = append(deferrals, store.Deferral{Lease: lease, Delay: later(after, drawLot())})
		}
	}
	return leased.More, errors.Join(err, d.store.DeferEvents(ctx, bucket, deferrals...))
}

// place does with a leased event what is decided, or returns after which time to look at it again, and why.
func (d *dispatcher) place(ctx context.Context, lease store.Lease, redisNow, asked time.Time) (after time.Duration, why string, done bool) {
	endpoint := d.index.Endpoint(lease.Event.MerchantID)
	decided := decide(lease, endpoint, redisNow)
	switch decided.move {
	case wait:
		d.explain(decided, lease)
		return decided.after, decided.why, false
	case drop:
		if d.end(ctx, lease, "drop", d.store.DropEvent) {
			d.metrics.ended(lease.Event.Kind, outcomeDropped)
		}
		return 0, "", true
	case bury:
		d.bury(ctx, lease, reasonDisabled)
		return 0, "", true
	case resume:
		if _, err := d.store.ResumeEndpoint(ctx, lease.Event.MerchantID, endpoint.Target); err != nil {
			d.couldNotWork(err)
			return 0, deferredBusy, false
		}
		d.wake()
	case send:
	}
	return d.lanes.offer(parcel{
		lease:    lease,
		endpoint: endpoint,
		occurred: asked.Add(-redisNow.Sub(lease.Event.OccurredAt)),
		startBy:  asked.Add(d.options.Lease - delivery.Timeout - attemptMargin),
		leaseEnd: asked.Add(d.options.Lease),
	})
}

// causes are what a person can do something about when events wait for long.
var causes = map[string]string{
	deferredUnknown:     "nothing is published of their merchant, and the operator has not withdrawn it",
	deferredUndecodable: "what is published of their merchant cannot be decoded",
	deferredUnsigned:    "their merchant has no signing secret that can be read",
	deferredUnsupported: "a newer program wrote them; upgrade the dispatcher",
}

// explain logs now and then why events wait, once the pauses have grown long.
func (d *dispatcher) explain(decided decision, lease store.Lease) {
	if decided.after >= time.Minute && d.logged.allows(decided.why, longestPause) {
		d.options.Log.Warn("events wait", "reason", decided.why, "cause", causes[decided.why],
			"merchantID", lease.Event.MerchantID, "eventID", lease.Event.ID)
	}
}

func (d *dispatcher) bury(ctx context.Context, lease store.Lease, reason string) {
	if d.end(ctx, lease, "bury", func(ctx context.Context, lease store.Lease) error {
		return d.store.BuryEvent(ctx, lease, reason)
	}) {
		d.metrics.buried(lease.Event.Kind, reason)
	}
}

// end does one thing to a leased event and reports whether it is done. If not, the event comes due again with the end
// of its lease.
func (d *dispatcher) end(ctx context.Context, lease store.Lease, step string, do func(context.Context, store.Lease) error) bool {
	err := do(ctx, lease)
	switch {
	case errors.Is(err, store.ErrLeaseLost):
		d.metrics.leasesLost.Inc()
	case err != nil:
		d.options.Log.Error("could not end an event; it comes due again", "step", step, "eventID", lease.Event.ID, "error", err)
	}
	return err == nil
}

// putOff hands events back that were held here.
func (d *dispatcher) putOff(after time.Duration, why string, parcels ...parcel) {
	byBucket := map[session.Bucket][]store.Deferral{}
	for _, p := range parcels {
		d.metrics.deferred.WithLabelValues(why).Inc()
		bucket := p.lease.Event.Bucket()
		byBucket[bucket] = append(byBucket[bucket], store.Deferral{Lease: p.lease, Delay: later(after, drawLot())})
	}
	for bucket, deferrals := range byBucket {
		for some := range slices.Chunk(deferrals, leaseBatch) {
			if err := d.store.DeferEvents(d.records, bucket, some...); err != nil {
				d.couldNotWork(err) // they come due with the end of their leases
			}
		}
	}
}

// wake asks to pass on at once how endpoints fare.
func (d *dispatcher) wake() { wake(d.healthNews) }
