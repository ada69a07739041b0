package session

import "time"

// RefundRefRule is the rule of a refund's reference, worded to follow the field's name.
const RefundRefRule = PaymentRefRule

// Refund is what a rail confirms: money of a payment that went back to the payer. The service moves none.
type Refund struct {
	// Rail confirms it, and Ref names it: chosen by the rail, and repeated with each confirmation of it.
	Rail Rail
	Ref  string
	// PaymentRef names the payment, as the same rail has reported it.
	PaymentRef string
	// AmountCents may be a part of the payment.
	AmountCents int64
	// At is when it was recorded; zero: it is not yet.
	At time.Time
}

// Validate checks every field; the error is a *FieldError for the first that breaks its rule.
func (r Refund) Validate() error {
	switch {
	case !validPaymentRef(r.PaymentRef):
		return &FieldError{Field: "paymentRef", Rule: PaymentRefRule}
	case !validPaymentRef(r.Ref):
		return &FieldError{Field: "refundRef", Rule: RefundRefRule}
	case r.AmountCents < 1 || r.AmountCents > MaxReportedCents:
		return &FieldError{Field: "amountCents", Rule: ReportedAmountRule}
	}
	return nil
}

// SumRefunds adds up refunds of one payment.
func SumRefunds(refunds []Refund) (cents int64) {
	for _, refund := range refunds {
		cents += refund.AmountCents
	}
	return cents
}

// RefundState is what a session knows of a refund reference.
type RefundState string

const (
	// RefundUnknown is a reference that was not confirmed before.
	RefundUnknown RefundState = "unknown"
	// RefundSame is one that was confirmed before, of the same payment and with the same amount.
	RefundSame RefundState = "same"
	// RefundOther is one that was confirmed or asked for before, of another payment or amount.
	RefundOther RefundState = "other"
)

// What else than Applied, Repeated and Conflict may become of a refund. Nothing changes.
const (
	// NoPayment says that no money of this payment has moved, as far as the session knows.
	NoPayment Decision = "no_payment"
	// ExceedsPayment says that more would have gone back than the payment was.
	ExceedsPayment Decision = "exceeds_payment"
	// TooManyRefunds says that the session keeps no more refunds for which no merchant has asked of this rail; or, of a request, no more requests.
	TooManyRefunds Decision = "too_many_refunds"
)

// DecideRefund decides about a refund. paid: money of the payment has moved, be it taken or refused. within: all refunds of the payment, this one
// among them, are at most its amount. room: the session keeps another refund of the rail.
func DecideRefund(refund RefundState, paid, within, room bool) Decision {
	switch {
	case refund == RefundSame:
		return Repeated
	case refund == RefundOther:
		return Conflict
	case !paid:
		return NoPayment
	case !within:
		return ExceedsPayment
	case !room:
		return TooManyRefunds
	default:
		return Applied
	}
}
