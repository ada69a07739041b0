package payments

import (
	"cmp"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Kind is the direction of a movement.
type Kind string

// The kinds of movements.
const (
	Refused  Kind = "refused" // money came in that its session did not take
	Refunded Kind = "refund"  // money of a payment went back, whether its session took the payment or not
)

// Movement is money of a session that moved without ending it. Times are Unix timestamps in milliseconds.
type Movement struct {
	Kind      Kind   `json:"kind"`
	SessionID string `json:"sessionId"`
	OrderRef  string `json:"orderRef,omitempty"`
	// PaymentRef names the payment that was refused, or of which money went back.
	PaymentRef string `json:"paymentRef"`
	RefundRef  string `json:"refundRef,omitempty"` // only of a refund
	// AmountCents is positive for each kind. Currency is the payment's, which may be another one than the session's.
	AmountCents int64  `json:"amountCents"`
	Currency    string `json:"currency"`
	RecordedAt  int64  `json:"recordedAt"`
	CreatedAt   int64  `json:"createdAt"` // when the session was created
	KeyID       string `json:"keyId"`     // of the API key that created the session
	// Key is the name of the ApiKey with KeyID; empty: unknown here. The API does not know it.
	Key string `json:"key,omitempty"`
	// Livemode is absent from live sessions.
	Livemode *bool `json:"livemode,omitempty"`
}

// NewMovement returns the refused payment or the refund of a session. ok is false if both are nil: then no money moved besides the session's end.
// recordedAt is when the refused payment was recorded; a refund says it itself.
func NewMovement(of *session.Session, refused *session.Payment, refund *feed.Refund, recordedAt time.Time) (movement Movement, ok bool) {
	movement = Movement{SessionID: of.ID.String(), OrderRef: of.Charge.OrderRef, CreatedAt: millis(of.CreatedAt), KeyID: of.KeyID}
	if of.ID.TestMode() {
		movement.Livemode = new(false)
	}
	switch {
	case refused != nil:
		movement.Kind, movement.PaymentRef, movement.RecordedAt = Refused, refused.Ref, millis(recordedAt)
		movement.AmountCents, movement.Currency = refused.AmountCents, refused.Currency
	case refund != nil:
		movement.Kind, movement.PaymentRef, movement.RecordedAt = Refunded, refund.PaymentRef, millis(refund.At)
		movement.AmountCents, movement.Currency, movement.RefundRef = refund.AmountCents, refund.Currency, refund.Ref
	default:
		return Movement{}, false
	}
	return movement, true
}

// NetCents is the amount as it changes what the merchant has: negative for a refund.
func (m Movement) NetCents() int64 {
	if m.Kind == Refunded {
		return -m.AmountCents
	}
	return m.AmountCents
}

// Recorded is when the movement was recorded.
func (m Movement) Recorded() time.Time { return at(m.RecordedAt) }

// Net is what came in of a currency, less what went back. Its sums are exact: 9,000 movements of the largest amount that a rail can report fit.
type Net struct {
	Currency string `json:"currency"`
	// PaidCents is the sum over completed sessions, RefusedCents over refused payments and RefundedCents over refunds.
	PaidCents     int64 `json:"paidCents"`
	RefusedCents  int64 `json:"refusedCents"`
	RefundedCents int64 `json:"refundedCents"`
	// AmountCents is PaidCents and RefusedCents less RefundedCents, and Amount the same as a decimal number.
	AmountCents int64  `json:"amountCents"`
	Amount      string `json:"amount"`
}

// AddMovement adds a movement to the net sums.
func (s *Sums) AddMovement(movement Movement) {
	net := s.net(movement.Currency)
	if movement.Kind == Refunded {
		net.RefundedCents += movement.AmountCents
	} else {
		net.RefusedCents += movement.AmountCents
	}
}

// net returns the net sum of a currency.
func (s *Sums) net(currency string) *Net {
	if s.nets == nil {
		s.nets = map[string]*Net{}
	}
	net := s.nets[currency]
	if net == nil {
		net = &Net{Currency: currency}
		s.nets[currency] = net
	}
	return net
}

// Net returns the net sums of completed sessions and movements, by currency.
func (s *Sums) Net() []Net {
	each := make([]Net, 0, len(s.nets))
	for currency, sum := range s.nets {
		net := *sum
		net.AmountCents = net.PaidCents + net.RefusedCents - net.RefundedCents
		net.Amount = session.FormatAmount(net.AmountCents, currency)
		each = append(each, net)
	}
	slices.SortFunc(each, func(a, b Net) int { return cmp.Compare(a.Currency, b.Currency) })
	return each
}
