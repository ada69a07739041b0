package session

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// RefundRequest is what a merchant asks of the rail that was paid: to pay back money of the payment that completed the session. The rail confirms it
// with a Refund of its name, or rejects it.
type RefundRequest struct {
	// ID names it, and is the reference of the refund that confirms it.
	ID          string
	AmountCents int64
	// Reason is for people, and the rail reads it; empty: not given.
	Reason string
	Status RefundStatus
	// RequestedAt is when it was recorded, and DecidedAt when it was confirmed or rejected; zero: it is open.
	RequestedAt, DecidedAt time.Time
	// RejectReason says why it was rejected: a rail's words, or AlreadyRefunded; empty: not given.
	RejectReason string
}

// RefundStatus is what became of a RefundRequest.
type RefundStatus string

// The statuses of a RefundRequest. One that was rejected may be confirmed later, as its money may have moved; one that was confirmed stays so.
const (
	RefundRequested RefundStatus = "REQUESTED"
	RefundConfirmed RefundStatus = "CONFIRMED"
	RefundRejected  RefundStatus = "REJECTED"
)

// RefundOverdue is how long a refund may wait before its merchant's page and an alert say so.
const RefundOverdue = 7 * 24 * time.Hour

// AlreadyRefunded is the RejectReason of a request that no longer fits into the payment, because its rail has paid back money without a request.
const AlreadyRefunded = "already_refunded"

// RefundAmountRule is the rule of the amount of a RefundRequest.
const RefundAmountRule = AmountRule + ", or absent for all that is left of the payment"

// ValidateRefundRequest checks what a merchant asks for; no amount: the rest of the payment. The error is as that of Validate.
func ValidateRefundRequest(cents *int64, reason string) error {
	switch {
	case cents != nil && (*cents < 1 || *cents > MaxAmountCents):
		return &FieldError{Field: "amountCents", Rule: RefundAmountRule}
	case !validReason(reason):
		return &FieldError{Field: "reason", Rule: ReasonRule}
	}
	return nil
}

// ValidateRejection checks why a rail rejects a RefundRequest, and which.
func ValidateRejection(paymentRef, refundID, reason string) error {
	switch {
	case !validPaymentRef(paymentRef):
		return &FieldError{Field: "paymentRef", Rule: PaymentRefRule}
	case !validPaymentRef(refundID):
		return &FieldError{Field: "refundRef", Rule: RefundRefRule}
	case !validReason(reason):
		return &FieldError{Field: "reason", Rule: ReasonRule}
	}
	return nil
}

// NewRefundID names the request that an Idempotency-Key makes of a session. No two sessions have the same, so that a rail may name a movement of money
// by it.
func NewRefundID(id ID, key IdempotencyKey) string { return "rf_" + refundDigest(id, key.Hash()) }

// NewOwedRef proposes the reference of the next refund of a refused payment, of which so many refunds were recorded: the same until it is confirmed,
// whatever its rail has forgotten.
func NewOwedRef(id ID, payment Payment, recorded int) string {
	return "rp_" + refundDigest(id, payment.Rail.Scope(payment.Ref)+" "+strconv.Itoa(recorded))
}

// refundDigest returns 24 hex digits of what names money of a session.
func refundDigest(id ID, name string) string {
	sum := sha256.Sum256([]byte(id.String() + "\n" + name))
	return hex.EncodeToString(sum[:12])
}

// RefundRequestState is what a session knows of the request of an Idempotency-Key.
type RefundRequestState string

const (
	// RequestUnknown is one that was not made before.
	RequestUnknown RefundRequestState = "unknown"
	// RequestSame is one that was made before with the same amount, or both times for all that was left.
	RequestSame RefundRequestState = "same"
	// RequestOther is one that was made before with another amount.
	RequestOther RefundRequestState = "other"
)

// NotCompleted says of a RefundRequest that no payment has completed the session. Nothing changes.
const NotCompleted Decision = "not_completed"

// DecideRefundRequest decides about a request. within: there is money left of the payment, and all refunds that were confirmed or are still asked for,
// this one among them, are at most its amount. room: the session keeps another one.
func DecideRefundRequest(request RefundRequestState, completed, within, room bool) Decision {
	switch {
	case request == RequestSame:
		return Repeated
	case request == RequestOther:
		return Conflict
	case !completed:
		return NotCompleted
	case !within:
		return ExceedsPayment
	case !room:
		return TooManyRefunds
	default:
		return Applied
	}
}

// NoRequest says of a rejection that the session has no such request of this payment. Nothing changes.
const NoRequest Decision = "no_request"

// DecideRejection decides about the rejection of a request in this status; empty: there is none.
func DecideRejection(status RefundStatus) Decision {
	switch status {
	case RefundRequested:
		return Applied
	case RefundRejected:
		return Repeated
	case RefundConfirmed:
		return Conflict
	default:
		return NoRequest
	}
}
