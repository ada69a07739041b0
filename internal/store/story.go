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

// ReadStory reads what happened to a session, for who may see all of its merchant's payments. It writes nothing. Errors: ErrNotFound, also for
// the zero ID; redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) ReadStory(ctx context.Context, id session.ID) (session.Story, error) {
	call := redis.NewCall(readStoryScript)
	call.Key("session_key", redis.BucketKeyspace(id.Bucket()), sessionhash.Key, id.String())
	story, _, err := s.readStory(ctx, id, &call)
	return story, err
}

// Payments is what a rail may know of a session.
type Payments struct {
	session.Story

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
func (s *Store) readStory(ctx context.Context, id session.ID, call *redis.Call) (session.Story, *redis.Reply, error) {
	reply, err := s.redis.Run(ctx, call)
	if err != nil {
		return session.Story{}, nil, fmt.Errorf("read the story of a session: %w", err)
	}
	if err := sessionError(&reply); err != nil {
		return session.Story{}, nil, err
	}
	fields, listed := reply.List(), reply.List()
	if reply.Err() != nil {
		return session.Story{}, nil, redis.ErrCorrupt
	}
	story, err := parseStory(id, &fields, &listed)
	return story, &reply, err
}

// parseStory decodes the fields in the order of const.SESSION_FIELDS, and then all fields by their names, if there is something to list.
func parseStory(id session.ID, fields, listed *redis.Reply) (session.Story, error) {
	read, err := sessionhash.Parse(id, fields)
	if err != nil {
		return session.Story{}, err
	}
	story, refunds := session.Story{Session: read}, map[string][]session.Refund{} // by their payment
	for listed.More() {
		name, text := listed.Text(), listed.Text()
		if payment, is := strings.CutPrefix(name, sessionhash.RefusedField); is {
			refused, ok := parseRefused(payment, text, read.Currency)
			listed.Require(ok)
			story.Refused = append(story.Refused, refused)
		} else if name, is := strings.CutPrefix(name, sessionhash.RefundField); is {
			refund, ok := parseRefund(name, text)
			listed.Require(ok)
			payment := refund.Rail.Scope(refund.PaymentRef)
			refunds[payment] = append(refunds[payment], refund)
		} else if id, is := strings.CutPrefix(name, sessionhash.RequestField); is {
			request, payment, ok := parseRequest(id, text)
			listed.Require(ok && payment == read.PaymentRail.Scope(read.PaymentRef))
			story.Requests = append(story.Requests, request)
		} else if rail, is := strings.CutPrefix(name, sessionhash.FailuresField); is {
			for ref := range strings.FieldsSeq(text) {
				story.Failed = append(story.Failed, session.Payment{
					Rail: session.Rail(rail), Ref: ref, Outcome: session.Failed, AmountCents: read.Charge.AmountCents, Currency: read.Currency,
				})
			}
		}
	}
	for of := range refunds {
		slices.SortFunc(refunds[of], func(a, b session.Refund) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Ref, b.Ref)) })
	}
	take := func(payment session.Payment) []session.Refund {
		name := payment.Rail.Scope(payment.Ref)
		taken := refunds[name]
		delete(refunds, name)
		return taken
	}
	for i := range story.Refused {
		story.Refused[i].Refunds = take(story.Refused[i].Payment)
	}
	if read.Status == session.Completed {
		story.Refunds = take(read.Payment())
	}
	listed.Require(len(refunds) == 0) // else they are of payments that were not reported
	if listed.Err() != nil {
		return session.Story{}, redis.ErrCorrupt
	}
	slices.SortFunc(story.Requests, func(a, b session.RefundRequest) int {
		return cmp.Or(a.RequestedAt.Compare(b.RequestedAt), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(story.Refused, func(a, b session.RefusedPayment) int {
		return cmp.Or(a.PaidAt.Compare(b.PaidAt), cmp.Compare(a.Ref, b.Ref), cmp.Compare(a.Rail, b.Rail))
	})
	return story, nil
}

// parseRefund reads a field b:<refund> of a session.
func parseRefund(name, text string) (session.Refund, bool) {
	rail, ref, ok := session.ParseScoped(name)
	text, _, _ = strings.Cut(text, "\t")
	amount, rest, _ := strings.Cut(text, " ")
	at, payment, _ := strings.Cut(rest, " ")
	payment, own := strings.CutPrefix(payment, rail.Scope(""))
	cents, err := strconv.ParseInt(amount, 10, 64)
	recorded, atErr := strconv.ParseInt(at, 10, 64)
	refund := session.Refund{Rail: rail, Ref: ref, PaymentRef: payment, AmountCents: cents, At: time.UnixMilli(recorded).UTC()}
	return refund, ok && err == nil && atErr == nil && cents > 0 && own
}

// parseRefused reads a field l:<payment> of a session in the currency.
func parseRefused(name, text, currency string) (session.RefusedPayment, bool) {
	rail, ref, ok := session.ParseScoped(name)
	text, _, _ = strings.Cut(text, "\t")
	words := strings.Split(text, " ")
	const decision, amount, paidAt, other = 0, 1, 2, 3
	if len(words) <= paidAt || len(words) > other+1 {
		return session.RefusedPayment{}, false
	}
	if len(words) > other {
		currency = words[other]
	}
	cents, err := strconv.ParseInt(words[amount], 10, 64)
	paid, paidErr := strconv.ParseInt(words[paidAt], 10, 64)
	payment := session.RefusedPayment{
		Payment:  session.Payment{Rail: rail, Ref: ref, Outcome: session.Completed, AmountCents: cents, Currency: currency},
		Decision: session.Decision(words[decision]),
	}
	if paid > 0 {
		payment.PaidAt = time.UnixMilli(paid).UTC()
	}
	return payment, ok && err == nil && paidErr == nil && payment.Decision.RefundRequired()
}
