package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

// Errors of requests for refunds. Nothing has changed.
var (
	// ErrNotCompleted says that no payment has completed the session.
	ErrNotCompleted = errors.New("no payment has completed the session")
	// ErrRequestConflict says that the Idempotency-Key asked for another amount before.
	ErrRequestConflict = errors.New("the Idempotency-Key was used for a refund of another amount")
	// ErrNoMoreRequests says that the session keeps no more requests: as many were asked for, or are open, as may be.
	ErrNoMoreRequests = errors.New("the session keeps no more requests for refunds")
	// ErrNoRequest says that the session has no such request of this payment.
	ErrNoRequest = errors.New("no such request for a refund")
	// ErrRequestConfirmed says that the refund was confirmed, so that it cannot be rejected.
	ErrRequestConfirmed = errors.New("the refund was confirmed before")
)

const (
	// maxRequests is how many requests a session keeps, whatever becomes of them. Each script about its refunds reads all of them, and a reason has
	// up to a kilobyte: with 200 of them a request that is refused took as long as 100 charges of other merchants.
	maxRequests = 20
	// maxOpenRequests is how many of them may be open at once. The list of what a rail owes has one line for each.
	maxOpenRequests = 10
)

// AskedRefund is what a merchant asks for.
type AskedRefund struct {
	// Idempotency names the request; not zero.
	Idempotency session.IdempotencyKey
	// AmountCents is nil for all that is left of the payment.
	AmountCents *int64
	Reason      string
}

// RequestedRefund is a request as the session has it now.
type RequestedRefund struct {
	session.RefundRequest

	// Currency is the ISO 4217 code of the session's currency.
	Currency string
	// Repeated: the Idempotency-Key had asked for it before, and nothing has changed.
	Repeated bool
}

// RequestRefund records that the asking merchant wants money of the payment that completed a
// session to go back. The request has been validated; the same Idempotency-Key gets the same
// request for as long as the session is kept. Sessions of test mode have it confirmed at once.
// Errors are those of Session, and ErrNotCompleted, ErrRequestConflict, ErrRefundExceedsPayment,
// ErrNoMoreRequests. After redis.ErrUnavailable it may have been recorded: ask again. It counts as
// one request of the merchant, and as Story does, in two round trips: the first reads which rail
// was paid, and the second declares that rail's keys.
func (s *Store) RequestRefund(ctx context.Context, asks admission.Request, id session.ID, asked AskedRefund) (admission.Admitted, RequestedRefund, error) {
	admitted, story, err := s.Story(ctx, asks, id)
	if err != nil {
		return admitted, RequestedRefund{}, err
	}
	requested, err := s.requestRefund(story.Session, asked, func(payment session.Payment) (string, redis.Reply, error) {
		asks.Counted = true
		call := s.admitter.NewCall(admitRequestScript, &asks)
		call.AdmissionKeys()
		writeRequestKeys(&call.Call, id, payment, asked)
		call.AdmissionArgs()
		s.writeRequest(&call.Call, id, payment, asked)
		counted, word, reply, err := call.RunReplicated(ctx, "ask for a refund")
		admitted = counted
		return word, reply, err
	})
	return admitted, requested, err
}

// RequestRefundFor is RequestRefund for people whose rights were checked elsewhere.
func (s *Store) RequestRefundFor(ctx context.Context, id session.ID, asked AskedRefund) (RequestedRefund, error) {
	story, err := s.ReadStory(ctx, id)
	if err != nil {
		return RequestedRefund{}, err
	}
	return s.requestRefund(story.Session, asked, func(payment session.Payment) (string, redis.Reply, error) {
		call := redis.NewCall(requestRefundScript)
		writeRequestKeys(&call, id, payment, asked)
		s.writeRequest(&call, id, payment, asked)
		reply, err := s.redis.RunReplicated(ctx, &call)
		if err != nil {
			return "", reply, fmt.Errorf("ask for a refund: %w", err)
		}
		word := reply.Text()
		return word, reply, nil
	})
}

// requestRefund runs the script for the payment that has completed the session. run returns the first word of its reply and the rest.
func (s *Store) requestRefund(
	paid session.Session, asked AskedRefund, run func(session.Payment) (string, redis.Reply, error),
) (RequestedRefund, error) {
	if paid.Status != session.Completed {
		return RequestedRefund{}, ErrNotCompleted
	}
	word, reply, err := run(paid.Payment())
	if err != nil {
		return RequestedRefund{}, err
	}
	switch word {
	case "OK":
	case "NOT_FOUND":
		return RequestedRefund{}, ErrNotFound
	case "OTHER_PAYMENT": // Redis has lost what was just read
		return RequestedRefund{}, redis.ErrUnavailable
	default:
		return RequestedRefund{}, redis.ErrCorrupt
	}
	decision := session.Decision(reply.Text())
	switch decision {
	case session.Applied, session.Repeated:
	case session.Conflict:
		return RequestedRefund{}, ErrRequestConflict
	case session.NotCompleted:
		return RequestedRefund{}, ErrNotCompleted
	case session.ExceedsPayment:
		return RequestedRefund{}, ErrRefundExceedsPayment
	case session.TooManyRefunds:
		return RequestedRefund{}, ErrNoMoreRequests
	default:
		return RequestedRefund{}, redis.ErrCorrupt
	}
	stored := reply.Text()
	request, _, ok := parseRequest(session.NewRefundID(paid.ID, asked.Idempotency), stored)
	if !ok || reply.Err() != nil {
		return RequestedRefund{}, redis.ErrCorrupt
	}
	return RequestedRefund{RefundRequest: request, Currency: paid.Currency, Repeated: decision == session.Repeated}, nil
}

func writeRequestKeys(call *redis.Call, id session.ID, payment session.Payment, asked AskedRefund) {
	space, refundID := redis.BucketKeyspace(id.Bucket()), session.NewRefundID(id, asked.Idempotency)
	endKeys(call, space, id)
	call.Key("event_key", space, outbox.EventKey, feed.SessionEventID(id, feed.MarkRefundRequested(refundID)))
	call.Key("refund_key", space, outbox.EventKey, feed.SessionEventID(id, feed.MarkRefund(payment.Rail, refundID)))
	call.Key("requested_key", space, requestedKey)
	call.Key("refunds_key", space, refundsKey, string(payment.Rail))
	call.Key("account_requested_key", space, accountRequestedKey, id.Account())
}

func (s *Store) writeRequest(call *redis.Call, id session.ID, payment session.Payment, asked AskedRefund) {
	cents, keep := "", decimal(s.keepReported().Milliseconds())
	if asked.AmountCents != nil {
		cents = decimal(*asked.AmountCents)
	}
	if id.TestMode() {
		keep = ""
	}
	call.Text("payment", payment.Rail.Scope(payment.Ref))
	call.Text("refund_id", session.NewRefundID(id, asked.Idempotency))
	call.Text("cents", cents)
	call.Text("reason", session.EscapeTab(asked.Reason))
	call.Text("keep", keep)
	call.Flag("replicated", s.redis.Replicated())
	call.Text("history", s.historyArg)
}

// Rejection is what a rail says of a request that it will not pay back.
type Rejection struct {
	Rail session.Rail
	// PaymentRef names the payment, as the rail has reported it, and RefundID the request.
	PaymentRef, RefundID string
	Reason               string
}

// RejectRefund records a rejection, which has been validated. The same one gets the same answer, however often it is given; the reason is that of the
// first. Errors: ErrNotFound, also for the zero ID and sessions of test mode; ErrNoRequest, ErrRequestConfirmed; redis.ErrCorrupt,
// redis.ErrUnavailable. After the last one it may have been recorded: give it again.
func (s *Store) RejectRefund(ctx context.Context, id session.ID, rejection Rejection) (RequestedRefund, error) {
	return s.rejectRefund(ctx, id, rejection, false)
}

// RejectRefundDeleted is RejectRefund for a session whose merchant was deleted, without an event.
func (s *Store) RejectRefundDeleted(ctx context.Context, id session.ID, rejection Rejection) (RequestedRefund, error) {
	return s.rejectRefund(ctx, id, rejection, true)
}

func (s *Store) rejectRefund(ctx context.Context, id session.ID, rejection Rejection, merchantDeleted bool) (RequestedRefund, error) {
	if id.TestMode() {
		return RequestedRefund{}, ErrNotFound
	}
	space := redis.BucketKeyspace(id.Bucket())
	call := redis.NewCall(rejectRefundScript)
	endKeys(&call, space, id)
	call.Key("event_key", space, outbox.EventKey, feed.SessionEventID(id, feed.MarkRefundRejected(rejection.RefundID)))
	call.Key("requested_key", space, requestedKey)
	call.Key("refunds_key", space, refundsKey, string(rejection.Rail))
	call.Key("account_requested_key", space, accountRequestedKey, id.Account())
	call.Flag("merchant_deleted", merchantDeleted)
	call.Text("payment_ref", rejection.Rail.Scope(rejection.PaymentRef))
	call.Text("refund_id", rejection.RefundID)
	call.Text("reason", session.EscapeTab(rejection.Reason))
	call.Millis("keep", s.keepReported())
	call.Flag("replicated", s.redis.Replicated())
	call.Text("history", s.historyArg)
	reply, err := s.redis.RunReplicated(ctx, &call)
	if err != nil {
		return RequestedRefund{}, fmt.Errorf("reject a refund: %w", err)
	}
	if err := sessionError(&reply); err != nil {
		return RequestedRefund{}, err
	}
	decision, stored := session.Decision(reply.Text()), reply.OptionalText()
	if reply.Err() != nil {
		return RequestedRefund{}, redis.ErrCorrupt
	}
	switch decision {
	case session.NoRequest:
		return RequestedRefund{}, ErrNoRequest
	case session.Conflict:
		return RequestedRefund{}, ErrRequestConfirmed
	case session.Applied, session.Repeated:
	default:
		return RequestedRefund{}, redis.ErrCorrupt
	}
	request, _, ok := parseRequest(rejection.RefundID, stored)
	if !ok {
		return RequestedRefund{}, redis.ErrCorrupt
	}
	return RequestedRefund{RefundRequest: request, Repeated: decision == session.Repeated}, nil
}

// parseRequest reads a field a:<refund id> of a session, and returns the payment of the request as well.
func parseRequest(id, text string) (request session.RefundRequest, payment string, ok bool) {
	head, rest, tail := strings.Cut(text, "\t")
	reason, rest, more := strings.Cut(rest, "\t")
	rejectReason, _, _ := strings.Cut(rest, "\t")
	words := strings.SplitN(head, " ", 6)
	if !tail || !more || len(words) != 6 {
		return session.RefundRequest{}, "", false
	}
	request = session.RefundRequest{
		ID: id, Status: session.RefundStatus(words[0]), Reason: session.UnescapeTab(reason), RejectReason: session.UnescapeTab(rejectReason),
	}
	cents, centsErr := strconv.ParseInt(words[1], 10, 64)
	requested, requestedErr := strconv.ParseInt(words[2], 10, 64)
	decided, decidedErr := strconv.ParseInt(words[3], 10, 64)
	request.AmountCents, request.RequestedAt = cents, time.UnixMilli(requested).UTC()
	if decided != 0 {
		request.DecidedAt = time.UnixMilli(decided).UTC()
	}
	known := slices.Contains([]session.RefundStatus{session.RefundRequested, session.RefundConfirmed, session.RefundRejected}, request.Status)
	return request, words[5], id != "" && known && cents > 0 && centsErr == nil && requestedErr == nil && decidedErr == nil &&
		request.DecidedAt.IsZero() == (request.Status == session.RefundRequested)
}
