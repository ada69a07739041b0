package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Errors of refunds that are not recorded.
var (
	// ErrNoPayment says that the session knows no payment of this reference and rail whose money has moved.
	ErrNoPayment = errors.New("no such payment")
	// ErrRefundConflict says that the reference names a refund that was confirmed, or a request, of another payment or amount.
	ErrRefundConflict = errors.New("the refund was confirmed otherwise before")
	// ErrRefundExceedsPayment says that more would have gone back than the payment was.
	ErrRefundExceedsPayment = errors.New("the refunds would exceed the payment")
	// ErrTooManyRefunds says that the session keeps no more refunds of this rail for which no merchant has asked.
	ErrTooManyRefunds = errors.New("the session keeps no more refunds of the rail")
)

// maxRefunds is how many refunds a session keeps of each rail for which no merchant has asked: no rail takes the room of another, and no merchant that
// of a rail. Each is money that a rail has moved, so the rail gets an error at the bound.
const maxRefunds = 100

// Refunded is a refund that was recorded.
type Refunded struct {
	// At is when it was recorded first.
	At time.Time
	// Repeated: the same confirmation had been given before, and nothing has changed.
	Repeated bool
}

// Refund records that a rail has paid back money of a payment that it has reported. If its reference is the id of a merchant's request, that is
// confirmed; else open requests that do not fit into the payment any more are rejected, the newest first. The confirmation has been validated; the same one gets the same
// answer, however often it is given. Errors: ErrNotFound, also for the zero ID and sessions of test mode; ErrNoPayment, ErrRefundConflict,
// ErrRefundExceedsPayment, ErrTooManyRefunds; redis.ErrCorrupt, redis.ErrUnavailable. After the last one it may have been recorded: give it again. It
// is also the error when fewer replicas than redis.Options.Replicas have acknowledged it.
func (s *Store) Refund(ctx context.Context, id session.ID, refund session.Refund) (Refunded, error) {
	return s.refund(ctx, id, refund, false)
}

// RefundDeleted is Refund for a session whose merchant was deleted, without an event.
func (s *Store) RefundDeleted(ctx context.Context, id session.ID, refund session.Refund) (Refunded, error) {
	return s.refund(ctx, id, refund, true)
}

func (s *Store) refund(ctx context.Context, id session.ID, refund session.Refund, merchantDeleted bool) (Refunded, error) {
	if id.TestMode() {
		return Refunded{}, ErrNotFound
	}
	var displaced []string // requests of the merchant that will not fit any more: mostly none, so they are known only after a first try
	for {
		reply, err := s.runRefund(ctx, id, refund, merchantDeleted, displaced)
		if err != nil {
			return Refunded{}, fmt.Errorf("record a refund: %w", err)
		}
		word := reply.Text()
		switch {
		case word == "OK":
			return parseRefunded(&reply)
		case word == "NOT_FOUND":
			return Refunded{}, ErrNotFound
		case word != "DISPLACES" || !reply.More():
			return Refunded{}, redis.ErrCorrupt
		case ctx.Err() != nil:
			return Refunded{}, redis.ErrUnavailable
		}
		for reply.More() {
			displaced = append(displaced, reply.Text())
		}
	}
}

// runRefund runs the script, which may reject the requests of these ids.
func (s *Store) runRefund(ctx context.Context, id session.ID, refund session.Refund, merchantDeleted bool, displaced []string) (redis.Reply, error) {
	space := redis.BucketKeyspace(id.Bucket())
	call := redis.NewCall(refundScript)
	endKeys(&call, space, id)
	call.Key("refund_key", space, outbox.EventKey, feed.SessionEventID(id, feed.MarkRefund(refund.Rail, refund.Ref)))
	call.Key("owed_key", space, owedKey)
	call.Key("requested_key", space, requestedKey)
	call.Key("refunds_key", space, refundsKey, string(refund.Rail))
	call.Key("account_requested_key", space, accountRequestedKey, id.Account())
	for _, refundID := range displaced {
		call.MoreKey(space, outbox.EventKey, feed.SessionEventID(id, feed.MarkRefundRejected(refundID)))
	}
	call.Flag("merchant_deleted", merchantDeleted)
	call.Text("payment_ref", refund.Rail.Scope(refund.PaymentRef))
	call.Text("refund_ref", refund.Rail.Scope(refund.Ref))
	call.Int("cents", refund.AmountCents)
	call.Millis("keep", s.keepReported())
	call.Int("max_refunds", maxRefunds)
	call.Flag("replicated", s.redis.Replicated())
	call.Text("history", s.historyArg)
	for _, refundID := range displaced {
		call.More(refundID)
	}
	return s.redis.RunReplicated(ctx, &call)
}

func parseRefunded(reply *redis.Reply) (Refunded, error) {
	decision, refunded := session.Decision(reply.Text()), Refunded{At: reply.Millis()}
	if reply.Err() != nil {
		return Refunded{}, redis.ErrCorrupt
	}
	switch decision {
	case session.Applied:
		return refunded, nil
	case session.Repeated:
		refunded.Repeated = true
		return refunded, nil
	case session.Conflict:
		return Refunded{}, ErrRefundConflict
	case session.NoPayment:
		return Refunded{}, ErrNoPayment
	case session.ExceedsPayment:
		return Refunded{}, ErrRefundExceedsPayment
	case session.TooManyRefunds:
		return Refunded{}, ErrTooManyRefunds
	default:
		return Refunded{}, redis.ErrCorrupt
	}
}

// keepReported is how long a session is kept from a rail's report on.
func (s *Store) keepReported() time.Duration { return max(reportRetention, maxLifetime+s.retention) }
