package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Cancel ends a pending session of the asking merchant, and succeeds again when it was cancelled
// before. Errors are those of Session, and ErrSessionEnded when the session has ended otherwise: then
// the session is returned as well.
func (s *Store) Cancel(ctx context.Context, admission Admission, id session.ID) (Admitted, session.Session, error) {
	if !admission.owns(id) {
		return s.admitForeign(ctx, admission)
	}
	var call merchantCall
	admission.keys(&call)
	endKeys(&call.Call, admission.space(), id)
	s.admissionArgs(&call, &admission)
	call.Text(cancelRules)
	call.Text(s.trimming)
	reply, err := s.redis.RunCall(ctx, cancelScript, &call.Call)
	if err != nil {
		return Admitted{}, session.Session{}, fmt.Errorf("cancel a session: %w", err)
	}
	admitted, _, err := s.admittedOf(reply.Text(), &call, &admission)
	if err != nil {
		return admitted, session.Session{}, err
	}
	decision, fields := session.Decision(reply.Text()), reply.List()
	cancelled, err := sessionOf(id, &fields)
	if err != nil || reply.Err() != nil {
		return admitted, session.Session{}, redis.ErrCorrupt
	}
	if !decision.Ended() {
		return admitted, cancelled, ErrSessionEnded
	}
	return admitted, cancelled, nil
}

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
	// Unstored: the refund is required as ever, but the session keeps no more refused payments, and no event tells of this one.
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
	return s.settle(ctx, id, payment, settleRules)
}

// SettleDeleted is Settle for a session whose merchant was deleted.
func (s *Store) SettleDeleted(ctx context.Context, id session.ID, payment session.Payment) (Settlement, error) {
	if id.TestMode() {
		return Settlement{}, ErrTestSession
	}
	return s.settle(ctx, id, payment, settleDeletedRules)
}

// SettleTest is Settle for sessions of test mode, whose payments are played. Live sessions are ErrNotFound.
func (s *Store) SettleTest(ctx context.Context, id session.ID, payment session.Payment) (Settlement, error) {
	if !id.TestMode() {
		return Settlement{}, ErrNotFound
	}
	return s.settle(ctx, id, payment, settleRules)
}

func (s *Store) settle(ctx context.Context, id session.ID, payment session.Payment, rules map[session.Status]string) (Settlement, error) {
	paidAt, reason := "", ""
	if !payment.PaidAt.IsZero() {
		paidAt = decimal(payment.PaidAt.UnixMilli())
	}
	if payment.Outcome == session.Failed {
		reason = payment.Reason
	}
	space := redis.KeyspaceOf(id.Bucket())
	keys := []string{space.Key(sessionKey, id.String())}
	for _, mark := range []feed.Mark{feed.MarkEnded, feed.MarkLate(payment.Ref), feed.MarkMismatch(payment.Ref)} {
		keys = append(keys, space.Key(outbox.EventKey, feed.SessionEventID(id, mark)))
	}
	keys = append(keys, space.Key(outbox.QueueKey), space.Key(outbox.DueKey), space.Key(outbox.FeedKey, id.Account()))
	keep, most := decimal(max(reportRetention, maxLifetime+s.retention).Milliseconds()), maxRefusedPayments
	if id.TestMode() {
		keep, most = "", maxRefusedTestPayments
	}
	reply, err := s.redis.RunReplicated(ctx, settleScript, keys, rules[payment.Outcome], string(payment.Outcome), payment.Ref, payment.AmountCents,
		paidAt, reason, keep, most, redis.Flag(s.redis.Replicated()), s.trimming)
	if err != nil {
		return Settlement{}, fmt.Errorf("settle a session: %w", err)
	}
	switch reply.Text() {
	case "OK":
		return settlementOf(id, &reply)
	case "NOT_FOUND":
		return Settlement{}, ErrNotFound
	default: // "CORRUPT" among them
		return Settlement{}, redis.ErrCorrupt
	}
}

func settlementOf(id session.ID, reply *redis.Reply) (Settlement, error) {
	decision, fields := session.Decision(reply.Text()), reply.List()
	settled, err := sessionOf(id, &fields)
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

// The rules on how a session ends, as lib/sessions.lua reads them. They are decided in package session;
// the scripts only look them up.
var (
	cancelRules = rulesOf(func(status session.Status, _ session.PaymentState, _ bool) session.Decision {
		return session.Cancel(status)
	}, session.PaymentUnknown)
	settleRules        = rulesByOutcome(session.Settle)
	settleDeletedRules = rulesByOutcome(session.SettleDeleted)
)

func rulesByOutcome(
	settle func(status, outcome session.Status, payment session.PaymentState, sameAmount bool) session.Decision,
) map[session.Status]string {
	rules := map[session.Status]string{}
	for _, outcome := range []session.Status{session.Completed, session.Failed} {
		rules[outcome] = rulesOf(func(status session.Status, payment session.PaymentState, sameAmount bool) session.Decision {
			return settle(status, outcome, payment, sameAmount)
		}, session.PaymentUnknown, session.PaymentSettled, session.PaymentRefused)
	}
	return rules
}

// rulesOf writes down the decision in every case there can be: "<payment>/<status>/<same or other amount>=<decision>".
func rulesOf(
	decide func(session.Status, session.PaymentState, bool) session.Decision, payments ...session.PaymentState,
) string {
	statuses := []session.Status{session.Pending, session.Completed, session.Failed, session.Expired, session.Cancelled}
	var cases []string
	for _, payment := range payments {
		for _, status := range statuses {
			for _, amount := range []string{"same", "other"} {
				decision := decide(status, payment, amount == "same")
				cases = append(cases, string(payment)+"/"+string(status)+"/"+amount+"="+string(decision))
			}
		}
	}
	return strings.Join(cases, " ")
}
