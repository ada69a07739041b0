package payments

import (
	"cmp"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Payment is a session as its merchant reads it from the API. Times are Unix timestamps in milliseconds; 0: there is none.
type Payment struct {
	SessionID   string         `json:"sessionId"`
	Status      session.Status `json:"status"`
	AmountCents int64          `json:"amountCents"`
	Currency    string         `json:"currency"`
	OrderRef    string         `json:"orderRef,omitempty"`
	Description string         `json:"description,omitempty"`
	TaxCents    *int64         `json:"taxCents,omitempty"`
	TipCents    *int64         `json:"tipCents,omitempty"`
	CreatedAt   int64          `json:"createdAt"`
	ExpiresAt   int64          `json:"expiresAt"`
	EndedAt     int64          `json:"endedAt,omitempty"`
	PaymentRef  string         `json:"paymentRef,omitempty"` // of what completed or failed it
	Reason      string         `json:"reason,omitempty"`     // of a failure, if the rail gave one
	Reference   string         `json:"reference,omitempty"`  // on the payer's receipt, if it is paid
	KeyID       string         `json:"keyId"`                // of the API key that created it
	// Key is the name of the ApiKey with KeyID; empty: unknown here. The API does not know it.
	Key string `json:"key,omitempty"`
	// QRPayload is the text of the QR code. Only the API shows it.
	QRPayload string `json:"qrPayload,omitempty"`
	// Payments are those whose money has moved, if one was refused or refunded; only a read of one session has them.
	Payments []Part `json:"payments,omitempty"`
	// RefundRequests are what the merchant has asked for of the payment that completed it; only a read of one session has them.
	RefundRequests []RefundRequest `json:"refundRequests,omitempty"`
	// Livemode is absent from live sessions.
	Livemode *bool `json:"livemode,omitempty"`
}

// Part is one payment of a session, whose money has moved.
type Part struct {
	PaymentRef  string `json:"paymentRef"`
	AmountCents int64  `json:"amountCents"`
	Currency    string `json:"currency"`
	PaidAt      int64  `json:"paidAt,omitempty"` // if the rail said
	// Refused: the session did not take it, so all of it is to be refunded.
	Refused       bool     `json:"refused"`
	RefundedCents int64    `json:"refundedCents"`
	Refunds       []Refund `json:"refunds"`
}

// Refund is money of a payment that went back.
type Refund struct {
	RefundRef   string `json:"refundRef"`
	AmountCents int64  `json:"amountCents"`
	RefundedAt  int64  `json:"refundedAt"`
}

// RefundRequest is a refund that the merchant has asked for.
type RefundRequest struct {
	// RefundID is also the RefundRef of the refund that confirms it.
	RefundID    string               `json:"refundId"`
	Status      session.RefundStatus `json:"status"`
	AmountCents int64                `json:"amountCents"`
	Reason      string               `json:"reason,omitempty"`
	RequestedAt int64                `json:"requestedAt"`
	// DecidedAt is when it was confirmed or rejected, and RejectReason why it was rejected: the rail's words, if it has given some, or already_refunded.
	DecidedAt    int64  `json:"decidedAt,omitempty"`
	RejectReason string `json:"rejectReason,omitempty"`
}

// NewRefundRequest returns a request as its merchant reads it.
func NewRefundRequest(request session.RefundRequest) RefundRequest {
	return RefundRequest{
		RefundID: request.ID, Status: request.Status, AmountCents: request.AmountCents, Reason: request.Reason,
		RequestedAt: millis(request.RequestedAt), DecidedAt: millis(request.DecidedAt), RejectReason: request.RejectReason,
	}
}

// New returns a session as lists have it.
func New(sess *session.Session) Payment {
	payment := Payment{
		SessionID:   sess.ID.String(),
		Status:      sess.Status,
		AmountCents: sess.Charge.AmountCents,
		Currency:    sess.Currency,
		OrderRef:    sess.Charge.OrderRef,
		Description: sess.Charge.Description,
		TaxCents:    sess.Charge.TaxCents,
		TipCents:    sess.Charge.TipCents,
		CreatedAt:   millis(sess.CreatedAt),
		ExpiresAt:   millis(sess.ExpiresAt),
		EndedAt:     millis(sess.EndedAt),
		PaymentRef:  sess.PaymentRef,
		Reason:      sess.Reason,
		KeyID:       sess.KeyID,
	}
	if reference, paid := sess.Reference(); paid {
		payment.Reference = reference.String()
	}
	if sess.ID.TestMode() {
		payment.Livemode = new(false)
	}
	return payment
}

// NewStory returns a session with its payments whose money has moved, if there is more to say of them than the session says.
func NewStory(story *session.Story) Payment {
	sess := &story.Session
	payment := New(sess)
	if sess.Status == session.Completed && len(story.Refused)+len(story.Refunds) > 0 {
		payment.Payments = append(payment.Payments, newPart(sess.Payment(), false, story.Refunds))
	}
	for _, request := range story.Requests {
		payment.RefundRequests = append(payment.RefundRequests, NewRefundRequest(request))
	}
	for i := range story.Refused {
		payment.Payments = append(payment.Payments, newPart(story.Refused[i].Payment, true, story.Refused[i].Refunds))
	}
	return payment
}

func newPart(payment session.Payment, refused bool, refunds []session.Refund) Part {
	part := Part{
		PaymentRef: payment.Ref, AmountCents: payment.AmountCents, Currency: payment.Currency, PaidAt: millis(payment.PaidAt),
		Refused: refused, RefundedCents: session.SumRefunds(refunds), Refunds: []Refund{},
	}
	for _, refund := range refunds {
		part.Refunds = append(part.Refunds, Refund{refund.Ref, refund.AmountCents, millis(refund.At)})
	}
	return part
}

func millis(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

// Refunded is when it was recorded.
func (r Refund) Refunded() time.Time { return at(r.RefundedAt) }

// Requested is when it was recorded.
func (r RefundRequest) Requested() time.Time { return at(r.RequestedAt) }

// Decided is when it was confirmed or rejected; zero: it is open.
func (r RefundRequest) Decided() time.Time { return at(r.DecidedAt) }

// Amount is the amount as a decimal number.
func (p Payment) Amount() string { return session.FormatAmount(p.AmountCents, p.Currency) }

// Ended is when the session ended; zero: it is pending.
func (p Payment) Ended() time.Time { return at(p.EndedAt) }

// Created is when the session was created.
func (p Payment) Created() time.Time { return at(p.CreatedAt) }

func at(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds)
}

// Sum is over the sessions of one status and currency.
type Sum struct {
	Status   session.Status `json:"status"`
	Currency string         `json:"currency"`
	Sessions int64          `json:"sessions"`
	// AmountCents is exact: 900 thousand million sessions of the largest amount fit.
	AmountCents int64  `json:"amountCents"`
	Amount      string `json:"amount"`
}

// Sums adds up sessions and movements. The zero Sums is empty.
type Sums struct {
	sums map[sumKey]Sum
	nets map[string]*Net // by currency
}

type sumKey struct {
	status   session.Status
	currency string
}

// Add adds a session.
func (s *Sums) Add(payment Payment) {
	if s.sums == nil {
		s.sums = map[sumKey]Sum{}
	}
	key := sumKey{payment.Status, payment.Currency}
	sum := s.sums[key]
	s.sums[key] = Sum{Sessions: sum.Sessions + 1, AmountCents: sum.AmountCents + payment.AmountCents}
	if payment.Status == session.Completed {
		s.net(payment.Currency).PaidCents += payment.AmountCents
	}
}

// Each returns the sums of sessions: money that came in first, then by currency.
func (s *Sums) Each() []Sum {
	each := make([]Sum, 0, len(s.sums))
	for key, sum := range s.sums {
		sum.Status, sum.Currency, sum.Amount = key.status, key.currency, session.FormatAmount(sum.AmountCents, key.currency)
		each = append(each, sum)
	}
	order := []session.Status{session.Completed, session.Failed, session.Expired, session.Cancelled}
	slices.SortFunc(each, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Status), slices.Index(order, b.Status)), cmp.Compare(a.Currency, b.Currency))
	})
	return each
}
