package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/queue"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// deliver takes due events of a bucket on their way, whose stages are, in this order:
//
//	lease     for a while no other dispatcher takes the event   lease.go, package holder
//	decide    send it, drop it, give it up, or defer it         decide.go
//	carryOut  do so, or enqueue it to be sent                   lease.go
//	queue     it waits for a place among the attempts           package queue
//	Attempt   it is sent once                                   attempt.go
//	record    Redis knows the result before the lease ends      attempt.go
//
// ctx must outlive the shutdown of the loops: events that were leased must become known here.
func (d *dispatcher) deliver(ctx context.Context, bucket session.Bucket) (more bool, err error) {
	leased, err := d.lease(ctx, bucket)
	var deferrals []outbox.Deferral
	dropped := map[string]int{} // after they had waited for another webhook, by merchant id
	for _, lease := range leased.Leases {
		decided, endpoint := d.decide(lease, leased.Now)
		done := d.carryOut(ctx, leased, lease, decided, endpoint)
		switch {
		case done.action == deferEvent:
			d.metrics.deferral(lease.Event, done.reason)
			deferrals = append(deferrals, outbox.Deferral{Lease: lease, Delay: jitter.Add(done.delay, jitter.Fraction())})
		case done.action == drop && done.reason == outcomeRemoved:
			dropped[lease.Event.MerchantID]++
		}
	}
	for merchantID, events := range dropped {
		d.log.Warn("dropped events of a webhook that was removed 24 hours ago", "merchantID", merchantID, "events", events)
	}
	return leased.More, errors.Join(err, d.outbox.Defer(ctx, bucket, deferrals...))
}

// leased are events that this dispatcher has leased together.
type leased struct {
	outbox.Leased

	holder string    // the name that the leases are under
	asked  time.Time // when they were requested, by this program's clock
}

// lease leases due events of a bucket. What it cannot lease now is left to the next poll.
func (d *dispatcher) lease(ctx context.Context, bucket session.Bucket) (leased, error) {
	room, each := d.leaseRoom(bucket)
	if each == 0 {
		return leased{}, nil
	}
	name, err := d.holders.In(bucket).Confirm(ctx)
	if err != nil {
		return leased{}, err
	}
	asked := d.now()
	batch, err := d.outbox.Lease(ctx, bucket, outbox.LeaseRequest{
		HolderIdentity: name, For: d.options.Lease, Limit: leaseBatch, Room: room, Each: each,
	})
	for _, id := range batch.Undecodable {
		d.metrics.deadLettered(feed.Event{}, outbox.ReasonDecodeError)
		d.log.Error("could not decode an event; it is now a dead letter", "event", feed.HashID(id))
	}
	if batch.Expired > 0 {
		d.metrics.expiredEvents(batch.Expired)
		d.log.Error("lost events that were not delivered within 30 days", "bucket", bucket, "events", batch.Expired)
	}
	if len(batch.Leases) > 0 {
		d.wake()
	}
	return leased{batch, name, asked}, err
}

// leaseRoom returns for how many more events of the bucket's accounts there is room, 0 for a paused one, and for how many of each other.
func (d *dispatcher) leaseRoom(bucket session.Bucket) (room map[string]int, each int) {
	room, each = d.queues.Room(bucket)
	now := d.now()
	waits := func(lease outbox.Lease) bool {
		decided, _ := d.decide(lease, now)
		return decided.action == deferEvent
	}
	for _, account := range d.waiting.accounts(bucket, now, waits) {
		room[account] = 0
	}
	return room, each
}

// paused returns the accounts of the bucket whose events this dispatcher cannot try now.
func (d *dispatcher) paused(bucket session.Bucket) []string {
	room, _ := d.leaseRoom(bucket)
	maps.DeleteFunc(room, func(_ string, room int) bool { return room > 0 })
	return slices.Collect(maps.Keys(room))
}

// carryOut does what is decided about a leased event, and returns what was done. To defer it is left to the caller.
func (d *dispatcher) carryOut(ctx context.Context, from leased, lease outbox.Lease, decided decision, endpoint endpoints.Endpoint) decision {
	switch decided.action {
	case deferEvent:
		d.logDeferral(decided, lease)
		if decided.reason != deferredUnsupported && (decided.reason != deferredFrozen || endpoint.URL == "") {
			d.waiting.add(lease, from.asked.Add(decided.delay)) // so it is with all events of the account
			decided.delay = 0
		}
		return decided
	case drop:
		if !d.finish(ctx, lease, d.outbox.Drop) {
			return decision{} // it is due again when its lease ends
		}
		d.metrics.finished(lease.Event, cmp.Or(decided.reason, outcomeDropped))
		return decided
	case deadLetter:
		d.deadLetter(ctx, lease, outbox.Details{
			Reason: reasonDisabled, Answer: lease.Endpoint.LastFailure.Answer, Merchant: endpoint.Merchant.String(),
		})
		return decided
	case resume:
		if _, err := d.outbox.ResumeEndpoint(ctx, lease.Event.MerchantID, endpoint.Noted(d.index.Age())); err != nil {
			d.log.RedisFailed(err)
			return decision{deferEvent, deferredUnreadable, decided.delay}
		}
		d.healthChanged.Set()
	case send:
	}
	delay, reason, taken := d.queues.Offer(ctx, queue.Job{
		Lease:    lease,
		Holder:   from.holder,
		Endpoint: endpoint,
		Asked:    from.asked,
		RedisNow: from.Now,
		Occurred: from.asked.Add(-from.Now.Sub(lease.Event.OccurredAt)),
		StartBy:  from.asked.Add(d.options.Lease - delivery.Timeout - attemptMargin),
		LeaseEnd: from.asked.Add(d.options.Lease),
	})
	if !taken {
		return decision{deferEvent, reason, delay}
	}
	return decided
}

// waitingAccounts are those of which no event can be sent or dropped now, for a reason that all their events share: nothing is published
// of the merchant, or it has no signing secret. Such an account costs the same whatever its backlog, which stays in Redis untouched.
type waitingAccounts struct {
	mu       sync.Mutex
	byBucket [session.Buckets]map[string]waitingAccount
}

// waitingAccount waits until then, or until what is published allows to send or to drop this event of the account.
type waitingAccount struct {
	lease outbox.Lease
	until time.Time
}

func (w *waitingAccounts) add(lease outbox.Lease, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	bucket := lease.Event.Bucket()
	if w.byBucket[bucket] == nil {
		w.byBucket[bucket] = map[string]waitingAccount{}
	}
	w.byBucket[bucket][lease.Event.Account()] = waitingAccount{lease, until}
}

// accounts returns those that wait. It forgets the others.
func (w *waitingAccounts) accounts(bucket session.Bucket, now time.Time, waits func(outbox.Lease) bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var waiting []string
	for account, one := range w.byBucket[bucket] {
		if !now.Before(one.until) || !waits(one.lease) {
			delete(w.byBucket[bucket], account)
			continue
		}
		waiting = append(waiting, account)
	}
	return waiting
}
