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
	return s.readStory(ctx, id, &call)
}

// Payments is Story for a rail: a session that is due expires. Sessions of test mode are ErrNotFound.
func (s *Store) Payments(ctx context.Context, id session.ID) (Story, error) {
	if id.TestMode() {
		return Story{}, ErrNotFound
	}
	call := redis.NewCall(readPaymentsScript)
	endKeys(&call, redis.KeyspaceOf(id.Bucket()), id)
	call.Text("history", s.trimming)
	return s.readStory(ctx, id, &call)
}

func (s *Store) readStory(ctx context.Context, id session.ID, call *redis.Call) (Story, error) {
	reply, err := s.redis.Run(ctx, call)
	if err != nil {
		return Story{}, fmt.Errorf("read the story of a session: %w", err)
	}
	switch reply.Text() {
	case "OK":
	case "NOT_FOUND":
		return Story{}, ErrNotFound
	default:
		return Story{}, redis.ErrCorrupt
	}
	fields, refused := reply.List(), reply.List()
	story := Story{}
	if story.Session, err = parseSession(id, &fields); err != nil {
		return Story{}, err
	}
	for refused.More() {
		payment, ok := parseRefused(refused.Text(), refused.Text(), story.Session.Currency)
		refused.Break(ok)
		story.Refused = append(story.Refused, payment)
	}
	if reply.Err() != nil || refused.Err() != nil {
		return Story{}, redis.ErrCorrupt
	}
	slices.SortFunc(story.Refused, func(a, b RefusedPayment) int {
		return cmp.Or(a.PaidAt.Compare(b.PaidAt), cmp.Compare(a.Ref, b.Ref), cmp.Compare(a.Rail, b.Rail))
	})
	return story, nil
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
