package store

import (
	"context"
	"fmt"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/receipts"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// Settlement is what became of a reported payment. Neither Applied nor RefundRequired: no money has
// moved, and there is nothing to do.
type Settlement struct {
	// Session is as it is now.
	Session session.Session
	// Applied: this payment ended the session.
	Applied bool
	// RefundRequired: money has moved that the session does not take.
	RefundRequired bool
	// MerchantDeleted: the refund is required because the merchant was deleted.
	MerchantDeleted bool
	// Repeated: the same report had been given before, and nothing has changed.
	Repeated bool
	// Unstored: the refund is required as usual, but the session keeps no more refused payments, and there is no event of this one.
	Unstored bool
}

// Settle applies what a rail reports of a payment, which has been validated. The same report gets the
// same answer, however often it is given. Errors: ErrTestSession; ErrNotFound, also for the zero ID;
// ErrPaymentConflict, when the report contradicts an earlier one of the same reference;
// redis.ErrCorrupt, redis.ErrUnavailable. After the last one the report may have been applied: give it again. It is also the error
// when fewer replicas than redis.Options.Replicas have acknowledged it.
func (s *Store) Settle(ctx context.Context, id session.ID, payment session.Payment) (Settlement, error) {
	if id.TestMode() {
		return Settlement{}, ErrTestSession
	}
	return s.settle(ctx, id, payment, false)
}

// SettleDeleted is Settle for a session whose merchant was deleted.
func (s *Store) SettleDeleted(ctx context.Context, id session.ID, payment session.Payment) (Settlement, error) {
	if id.TestMode() {
		return Settlement{}, ErrTestSession
	}
	return s.settle(ctx, id, payment, true)
}

// SettleTest is Settle for sessions of test mode, whose payments are played. Live sessions are ErrNotFound.
func (s *Store) SettleTest(ctx context.Context, id session.ID, payment session.Payment) (Settlement, error) {
	if !id.TestMode() {
		return Settlement{}, ErrNotFound
	}
	payment.Rail = session.TestRail
	return s.settle(ctx, id, payment, false)
}

func (s *Store) settle(ctx context.Context, id session.ID, payment session.Payment, merchantDeleted bool) (Settlement, error) {
	paidAt, reason := "", ""
	if !payment.PaidAt.IsZero() {
		paidAt = decimal(payment.PaidAt.UnixMilli())
	}
	if payment.Outcome == session.Failed {
		reason = payment.Reason
	}
	keep, maxRefused := decimal(s.keepReported().Milliseconds()), int64(maxRefusedPayments)
	if id.TestMode() {
		keep, maxRefused = "", maxRefusedTestPayments
	}
	space := redis.BucketKeyspace(id.Bucket())
	call := redis.NewCall(settleScript)
	endKeys(&call, space, id)
	call.Key("late_key", space, outbox.EventKey, feed.SessionEventID(id, feed.MarkLate(payment.Rail, payment.Ref)))
	call.Key("mismatch_key", space, outbox.EventKey, feed.SessionEventID(id, feed.MarkMismatch(payment.Rail, payment.Ref)))
	call.Key("receipts_key", space, receipts.Key)
	call.Key("owed_key", space, owedKey)
	call.Key("refunds_key", space, refundsKey, string(payment.Rail))
	call.Text("outcome", string(payment.Outcome))
	call.Flag("merchant_deleted", merchantDeleted)
	call.Text("payment_ref", payment.Rail.Scope(payment.Ref))
	call.Int("cents", payment.AmountCents)
	call.Text("currency", payment.Currency)
	call.Text("paid_at", paidAt)
	call.Text("reason", reason)
	call.Text("keep", keep)
	call.Int("max_refused", maxRefused)
	call.Flag("replicated", s.redis.Replicated())
	call.Text("history", s.historyArg)
	reply, err := s.redis.RunReplicated(ctx, &call)
	if err != nil {
		return Settlement{}, fmt.Errorf("settle a session: %w", err)
	}
	if err := sessionError(&reply); err != nil {
		return Settlement{}, err
	}
	return parseSettlement(id, &reply)
}

func parseSettlement(id session.ID, reply *redis.Reply) (Settlement, error) {
	decision, fields := session.Decision(reply.Text()), reply.List()
	settled, err := sessionhash.Parse(id, &fields)
	unstored := reply.Int() == 1
	if err != nil || reply.Err() != nil {
		return Settlement{}, redis.ErrCorrupt
	}
	if decision == session.Conflict {
		return Settlement{}, ErrPaymentConflict
	}
	return Settlement{
		Session:         settled,
		Applied:         decision.Ended(),
		RefundRequired:  decision.RefundRequired(),
		MerchantDeleted: decision == session.MerchantDeleted,
		Repeated:        decision == session.Repeated || decision == session.RefundedAgain,
		Unstored:        unstored,
	}, nil
}
