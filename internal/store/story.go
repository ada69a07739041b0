package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Story is a session with the payments of it that are to be refunded.
type Story struct {
	Session session.Session
	// Refused are the payments that it did not take, in the order of PaidAt.
	Refused []RefusedPayment
}

// RefusedPayment is money that has moved and that its session does not take.
type RefusedPayment struct {
	Rail        session.Rail
	Ref         string
	AmountCents int64
	// Currency is that of the amount, which may be another one than the session's.
	Currency string
	// PaidAt is as the rail says; zero: it did not say.
	PaidAt time.Time
	// Decision says why: session.Late, session.Mismatched or session.MerchantDeleted.
	Decision session.Decision
}

// Story reads what happened to a session, for who may see all of its merchant's payments. It writes nothing. Errors: ErrNotFound, also for
// the zero ID; redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Story(ctx context.Context, id session.ID) (Story, error) {
	call := redis.NewCall(readStoryScript)
	call.Key("session_key", redis.KeyspaceOf(id.Bucket()), sessionKey, id.String())
	story, _, err := s.readStory(ctx, id, &call)
	return story, err
}

// Payments is what a rail may know of a session.
type Payments struct {
	Story
	// HeldUntil is zero if no payment holds the session.
	HeldUntil time.Time
	// Failed are the payments that failed while another one held the session.
	Failed []session.Payment
}

// Payments is Story for a rail: a session that is due expires. Sessions of test mode are ErrNotFound.
func (s *Store) Payments(ctx context.Context, id session.ID) (Payments, error) {
	if id.TestMode() {
		return Payments{}, ErrNotFound
	}
	call := redis.NewCall(readPaymentsScript)
	endKeys(&call, redis.KeyspaceOf(id.Bucket()), id)
	call.Text("history", s.trimming)
	story, reply, err := s.readStory(ctx, id, &call)
	if err != nil {
		return Payments{}, err
	}
	payments := Payments{Story: story, HeldUntil: reply.OptionalMillis()}
	for name := range strings.FieldsFuncSeq(reply.OptionalText(), func(r rune) bool { return r == '\n' }) {
		rail, ref, ok := session.ParseScoped(name)
		reply.Break(ok)
		payments.Failed = append(payments.Failed, session.Payment{
			Rail: rail, Ref: ref, Outcome: session.Failed, AmountCents: story.Session.Charge.AmountCents, Currency: story.Session.Currency,
		})
	}
	if reply.Err() != nil {
		return Payments{}, redis.ErrCorrupt
	}
	return payments, nil
}

// readStory returns what the reply begins with, and the rest of it.
func (s *Store) readStory(ctx context.Context, id session.ID, call *redis.Call) (Story, *redis.Reply, error) {
	reply, err := s.redis.Run(ctx, call)
	if err != nil {
		return Story{}, nil, fmt.Errorf("read the story of a session: %w", err)
	}
	switch reply.Text() {
	case "OK":
	case "NOT_FOUND":
		return Story{}, nil, ErrNotFound
	default:
		return Story{}, nil, redis.ErrCorrupt
	}
	fields, refused := reply.List(), reply.List()
	story := Story{}
	if story.Session, err = parseSession(id, &fields); err != nil {
		return Story{}, nil, err
	}
	for refused.More() {
		payment, ok := parseRefused(refused.Text(), refused.Text(), story.Session.Currency)
		refused.Break(ok)
		story.Refused = append(story.Refused, payment)
	}
	if reply.Err() != nil || refused.Err() != nil {
		return Story{}, nil, redis.ErrCorrupt
	}
	slices.SortFunc(story.Refused, func(a, b RefusedPayment) int {
		return cmp.Or(a.PaidAt.Compare(b.PaidAt), cmp.Compare(a.Ref, b.Ref), cmp.Compare(a.Rail, b.Rail))
	})
	return story, &reply, nil
}

// parseRefused reads a field l:<payment> of a session in the currency.
func parseRefused(name, text, currency string) (RefusedPayment, bool) {
	rail, ref, ok := session.ParseScoped(name)
	words := strings.Split(text, " ")
	const decision, amount, paidAt, other = 0, 1, 2, 3
	if len(words) <= paidAt || len(words) > other+1 {
		return RefusedPayment{}, false
	}
	if len(words) > other {
		currency = words[other]
	}
	cents, err := strconv.ParseInt(words[amount], 10, 64)
	paid, paidErr := strconv.ParseInt(words[paidAt], 10, 64)
	payment := RefusedPayment{Rail: rail, Ref: ref, AmountCents: cents, Currency: currency, Decision: session.Decision(words[decision])}
	if paid > 0 {
		payment.PaidAt = time.UnixMilli(paid).UTC()
	}
	return payment, ok && err == nil && paidErr == nil && payment.Decision.RefundRequired()
}
