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
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// Story is a session with what rails have reported of it: refused payments, and refunds.
type Story struct {
	Session session.Session
	// Refunds are those of the payment that completed the session.
	Refunds []Refund
	// Refused are the payments that it did not take, in the order of PaidAt.
	Refused []RefusedPayment
	// Failed are the payments that failed while another one held it.
	Failed []session.Payment
}

// Refund is money of a payment that went back, as a rail has confirmed.
type Refund struct {
	Ref         string
	AmountCents int64
	// At is when it was recorded.
	At time.Time
}

// SumRefunds adds up refunds of one payment.
func SumRefunds(refunds []Refund) (cents int64) {
	for _, refund := range refunds {
		cents += refund.AmountCents
	}
	return cents
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
	// Refunds are in the order in which they were recorded.
	Refunds []Refund
}

// ReadStory reads what happened to a session, for who may see all of its merchant's payments. It writes nothing. Errors: ErrNotFound, also for
// the zero ID; redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) ReadStory(ctx context.Context, id session.ID) (Story, error) {
	call := redis.NewCall(readStoryScript)
	call.Key("session_key", redis.BucketKeyspace(id.Bucket()), sessionhash.Key, id.String())
	story, _, err := s.readStory(ctx, id, &call)
	return story, err
}

// Payments is what a rail may know of a session.
type Payments struct {
	Story
	// MerchantDeleted: a payment was refused because the merchant was deleted.
	MerchantDeleted bool
	// HeldUntil is zero if no payment holds the session.
	HeldUntil time.Time
}

// Payments is ReadStory for a rail: a session that is due expires. Sessions of test mode are ErrNotFound.
func (s *Store) Payments(ctx context.Context, id session.ID) (Payments, error) {
	if id.TestMode() {
		return Payments{}, ErrNotFound
	}
	call := redis.NewCall(readPaymentsScript)
	endKeys(&call, redis.BucketKeyspace(id.Bucket()), id)
	call.Text("history", s.historyArg)
	story, reply, err := s.readStory(ctx, id, &call)
	if err != nil {
		return Payments{}, err
	}
	payments := Payments{Story: story, HeldUntil: reply.OptionalMillis(), MerchantDeleted: reply.Int() == 1}
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
	if err := sessionError(&reply); err != nil {
		return Story{}, nil, err
	}
	fields, listed := reply.List(), reply.List()
	if reply.Err() != nil {
		return Story{}, nil, redis.ErrCorrupt
	}
	story, err := parseStory(id, &fields, &listed)
	return story, &reply, err
}

// parseStory decodes the fields in the order of const.SESSION_FIELDS, and then all fields by their names, if there is something to list.
func parseStory(id session.ID, fields, listed *redis.Reply) (Story, error) {
	read, err := sessionhash.Parse(id, fields)
	if err != nil {
		return Story{}, err
	}
	story, refunds, names := Story{Session: read}, map[string][]Refund{}, []string(nil)
	for listed.More() {
		name, text := listed.Text(), listed.Text()
		if payment, is := strings.CutPrefix(name, sessionhash.RefusedField); is {
			refused, ok := parseRefused(payment, text, read.Currency)
			listed.Require(ok)
			story.Refused, names = append(story.Refused, refused), append(names, payment)
		} else if refund, is := strings.CutPrefix(name, sessionhash.RefundField); is {
			payment, refund, ok := parseRefund(refund, text)
			listed.Require(ok)
			refunds[payment] = append(refunds[payment], refund)
		} else if rail, is := strings.CutPrefix(name, sessionhash.FailuresField); is {
			for ref := range strings.FieldsSeq(text) {
				story.Failed = append(story.Failed, session.Payment{
					Rail: session.Rail(rail), Ref: ref, Outcome: session.Failed, AmountCents: read.Charge.AmountCents, Currency: read.Currency,
				})
			}
		}
	}
	for of := range refunds {
		slices.SortFunc(refunds[of], func(a, b Refund) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Ref, b.Ref)) })
	}
	for i, name := range names {
		story.Refused[i].Refunds = refunds[name]
		delete(refunds, name)
	}
	if read.Status == session.Completed {
		taken := read.PaymentRail.Scope(read.PaymentRef)
		story.Refunds = refunds[taken]
		delete(refunds, taken)
	}
	listed.Require(len(refunds) == 0) // else they are of payments that were not reported
	if listed.Err() != nil {
		return Story{}, redis.ErrCorrupt
	}
	slices.SortFunc(story.Refused, func(a, b RefusedPayment) int {
		return cmp.Or(a.PaidAt.Compare(b.PaidAt), cmp.Compare(a.Ref, b.Ref), cmp.Compare(a.Rail, b.Rail))
	})
	return story, nil
}

// parseRefund reads a field b:<refund> of a session.
func parseRefund(name, text string) (payment string, refund Refund, ok bool) {
	_, ref, ok := session.ParseScoped(name)
	text, _, _ = strings.Cut(text, "\t")
	amount, rest, _ := strings.Cut(text, " ")
	at, payment, _ := strings.Cut(rest, " ")
	cents, err := strconv.ParseInt(amount, 10, 64)
	recorded, atErr := strconv.ParseInt(at, 10, 64)
	return payment, Refund{Ref: ref, AmountCents: cents, At: time.UnixMilli(recorded).UTC()}, ok && err == nil && atErr == nil && cents > 0 && payment != ""
}

// parseRefused reads a field l:<payment> of a session in the currency.
func parseRefused(name, text, currency string) (RefusedPayment, bool) {
	rail, ref, ok := session.ParseScoped(name)
	text, _, _ = strings.Cut(text, "\t")
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
