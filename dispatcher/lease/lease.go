package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/attempt"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/dispatcher/holder"
	"github.com/merchant-operator/merchant-operator/dispatcher/loop"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/jitter"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Leaser leases events. All is required.
type Leaser struct {
	Outbox  *outbox.Outbox
	Holders holder.Set
	Worker  *attempt.Worker
	Queues  Queues
	// Duration is how long a lease lasts.
	Duration time.Duration
	// Leased is called when events were leased.
	Leased func()
	Now    func() time.Time
	Log    *loop.Log

	waiting waitingAccounts
}

// Queues make the attempts of jobs, as soon as there is a place for each.
type Queues interface {
	// Room returns for how many more jobs of the bucket's accounts there is room, and for how many of any other account.
	Room(bucket session.Bucket) (room map[string]int, each int)
	// Offer takes a job, or returns for how long to defer it, and why.
	Offer(ctx context.Context, j attempt.Job) (delay time.Duration, reason string, taken bool)
}

// Deliver takes due events of a bucket on their way, whose stages are, in this order:
//
//	lease    for a while no other dispatcher takes the event   Leaser.lease, package holder
//	decide   defer it, drop it, give it up, or send it         attempt.Worker.Decide
//	enqueue  it waits for a place among the attempts           Leaser.enqueue, package queue
//	send     it is sent once                                   attempt.Worker.Attempt
//	record   Redis knows the result before the lease ends      attempt.Worker.Attempt
//
// ctx must outlive the shutdown of the loops: events that were leased must become known here.
func (l *Leaser) Deliver(ctx context.Context, bucket session.Bucket) (more bool, err error) {
	batch, err := l.lease(ctx, bucket)
	var deferrals []outbox.Deferral
	dropped := map[string]int{} // after they had waited for another webhook, by merchant id
	for _, lease := range batch.Leases {
		decided, endpoint := l.Worker.Decide(lease, batch.Now)
		switch decided.Action {
		case attempt.Defer:
			decided = l.hold(batch, lease, decided, endpoint)
		case attempt.Drop:
			if l.Worker.Drop(ctx, lease, decided.Reason) && decided.Reason == attempt.OutcomeRemoved {
				dropped[lease.Event.MerchantID]++
			}
		case attempt.DeadLetter:
			l.Worker.DeadLetter(ctx, lease, outbox.Details{
				Reason: attempt.ReasonDisabled, Answer: lease.Endpoint.LastFailure.Answer, Merchant: endpoint.Merchant.String(),
			})
		case attempt.Resume, attempt.Send:
			decided = l.enqueue(ctx, batch, lease, decided, endpoint)
		}
		if decided.Action == attempt.Defer {
			l.Worker.Metrics.Deferred(lease.Event, decided.Reason)
			deferrals = append(deferrals, outbox.Deferral{Lease: lease, Delay: jitter.Add(decided.Delay, jitter.Fraction())})
		}
	}
	for merchantID, events := range dropped {
		l.Log.Warn("dropped events of a webhook that was removed 24 hours ago", "merchantID", merchantID, "events", events)
	}
	return batch.More, errors.Join(err, l.Outbox.Defer(ctx, bucket, deferrals...))
}

// batch are events that were leased together.
type batch struct {
	outbox.Leased

	holder *holder.Holder
	name   string    // that the leases are under
	asked  time.Time // when they were requested, by this program's clock
}

// lease leases due events of a bucket. What it cannot lease now is left to the next poll.
func (l *Leaser) lease(ctx context.Context, bucket session.Bucket) (batch, error) {
	room, each := l.room(bucket)
	if each == 0 {
		return batch{}, nil
	}
	from := l.Holders.In(bucket)
	name, err := from.Confirm(ctx)
	if err != nil {
		return batch{}, err
	}
	asked := l.Now()
	leased, err := l.Outbox.Lease(ctx, bucket, outbox.LeaseRequest{
		HolderIdentity: name, For: l.Duration, Limit: attempt.Batch, Room: room, Each: each,
	})
	for _, id := range leased.Undecodable {
		l.Worker.Metrics.DeadLettered(feed.Event{}, outbox.ReasonDecodeError)
		l.Log.Error("could not decode an event; it is now a dead letter", "event", feed.HashID(id))
	}
	if leased.Expired > 0 {
		l.Worker.Metrics.Expired(leased.Expired)
		l.Log.Error("lost events that were not delivered within 30 days", "bucket", bucket, "events", leased.Expired)
	}
	if len(leased.Leases) > 0 {
		l.Leased()
	}
	return batch{leased, from, name, asked}, err
}

// room returns for how many more events of the bucket's accounts there is room, 0 for a paused one, and for how many of each other.
func (l *Leaser) room(bucket session.Bucket) (room map[string]int, each int) {
	room, each = l.Queues.Room(bucket)
	now := l.Now()
	waits := func(lease outbox.Lease) bool {
		decided, _ := l.Worker.Decide(lease, now)
		return decided.Action == attempt.Defer
	}
	for _, account := range l.waiting.accounts(bucket, now, waits) {
		room[account] = 0
	}
	return room, each
}

// Paused returns the accounts of the bucket whose events this dispatcher cannot try now.
func (l *Leaser) Paused(bucket session.Bucket) []string {
	room, _ := l.room(bucket)
	maps.DeleteFunc(room, func(_ string, room int) bool { return room > 0 })
	return slices.Collect(maps.Keys(room))
}

// hold lets the account of a deferred event wait, if the reason is one of all its events. Then the delay is the account's, and not the event's.
func (l *Leaser) hold(from batch, lease outbox.Lease, decided attempt.Decision, endpoint endpoints.Endpoint) attempt.Decision {
	decided.Log(l.Log, lease)
	if decided.HoldsMerchant(endpoint) {
		l.waiting.add(lease, from.asked.Add(decided.Delay))
		decided.Delay = 0
	}
	return decided
}

// enqueue offers an event to the queues, and returns the decision to defer it if they do not take it.
func (l *Leaser) enqueue(ctx context.Context, from batch, lease outbox.Lease, decided attempt.Decision, endpoint endpoints.Endpoint) attempt.Decision {
	if decided.Action == attempt.Resume && !l.Worker.Resume(ctx, lease, endpoint) {
		decided.Action = attempt.Defer
		return decided
	}
	delay, reason, taken := l.Queues.Offer(ctx, attempt.Job{
		Lease:      lease,
		Holder:     from.holder,
		HolderName: from.name,
		Endpoint:   endpoint,
		Asked:      from.asked,
		RedisNow:   from.Now,
		Occurred:   from.asked.Add(-from.Now.Sub(lease.Event.OccurredAt)),
		StartBy:    from.asked.Add(l.Duration - attempt.MaxDuration),
		LeaseEnd:   from.asked.Add(l.Duration),
	})
	if !taken {
		return attempt.Decision{Action: attempt.Defer, Reason: reason, Delay: delay}
	}
	return decided
}

// waitingAccounts are the accounts none of whose events can be sent or dropped now, for a reason that all of these share: nothing is published
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
