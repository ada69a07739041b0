// Package session owns the domain of a payment session: what may be charged, how a session is
// named, which states it has and what ends it, and when two create requests are the same charge. It
// is pure and imports the standard library only: it knows neither HTTP nor Redis.
package session

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Status is where a session stands, in the spelling callers see.
type Status string

// A session is Pending until it becomes, once and for good, one of the others.
const (
	Pending   Status = "PENDING"
	Completed Status = "COMPLETED"
	Failed    Status = "FAILED"
	Expired   Status = "EXPIRED"
	Cancelled Status = "CANCELLED"
)

// Known reports whether s is one of the five statuses.
func (s Status) Known() bool { return s == Pending || s.Final() }

// Final reports whether a session with this status never changes again.
func (s Status) Final() bool {
	return s == Completed || s == Failed || s == Expired || s == Cancelled
}

// Session is one charge. All its times are of the clock of Redis, to the millisecond.
type Session struct {
	ID ID
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	// MerchantName is the name payers see, as it was when the session was created.
	MerchantName string
	// KeyID is of the API key that created it.
	KeyID  string
	Status Status
	// Currency is the ISO 4217 code of the charge's amounts.
	Currency  string
	Charge    Charge
	CreatedAt time.Time
	ExpiresAt time.Time
	// EndedAt is when the status became final; zero while the session is pending.
	EndedAt time.Time
	// PaymentRef names the payment that completed or failed the session; empty: none did.
	PaymentRef string
	// Reason says why that payment failed, in the rail's words; empty: it did not, or the rail did not say.
	Reason string
	// PaidAt is when that payment was made, as the rail says; zero: the rail did not say.
	PaidAt time.Time
}

const (
	maxPaymentRefLength = 128
	maxReasonCharacters = 255
)

// The rules of a report's fields, worded to follow the field's name.
const (
	PaymentRefRule = "must be a string of 1 to 128 visible ASCII characters"
	OutcomeRule    = "must be COMPLETED or FAILED"
	PaidAtRule     = "must be a time from 1970 to 9999, as Unix milliseconds or an RFC 3339 string"
	ReasonRule     = "must be a string of at most 255 characters without control characters"
)

// Payment is what a rail reports: how one attempt to pay a session ended.
type Payment struct {
	// Ref names the attempt, chosen by the rail and repeated with each report of it.
	Ref string
	// Outcome is Completed when money has moved, and Failed when none has and none will.
	Outcome     Status
	AmountCents int64
	// PaidAt is as the rail says, to the millisecond; zero: it did not say.
	PaidAt time.Time
	// Reason says why the payment failed, for people; empty: not given.
	Reason string
}

// Validate checks every field; the error is a *FieldError for the first that breaks its rule.
func (p Payment) Validate() error {
	switch {
	case !validPaymentRef(p.Ref):
		return &FieldError{Field: "paymentRef", Rule: PaymentRefRule}
	case p.Outcome != Completed && p.Outcome != Failed:
		return &FieldError{Field: "outcome", Rule: OutcomeRule}
	case p.AmountCents < 1 || p.AmountCents > MaxAmountCents:
		return &FieldError{Field: "amountCents", Rule: AmountRule}
	case !validPaidAt(p.PaidAt):
		return &FieldError{Field: "paidAt", Rule: PaidAtRule}
	case !validReason(p.Reason):
		return &FieldError{Field: "reason", Rule: ReasonRule}
	}
	return nil
}

func validPaymentRef(s string) bool {
	notVisible := func(r rune) bool { return r <= ' ' || r > '~' }
	return s != "" && len(s) <= maxPaymentRefLength && !strings.ContainsFunc(s, notVisible)
}

// validPaidAt accepts the times that have four digits for the year wherever they are shown.
func validPaidAt(at time.Time) bool {
	return at.IsZero() || (at.UnixMilli() > 0 && at.UTC().Year() <= 9999)
}

func validReason(s string) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxReasonCharacters &&
		!strings.ContainsFunc(s, unicode.IsControl)
}

// Decision is what becomes of a request to end a session. All rules on how a session ends are in Cancel and Settle; a session past
// its expiry is expired before they are asked.
type Decision string

const (
	// Applied says that the session ends with the wanted status.
	Applied Decision = "applied"
	// Repeated says that the same request ended it before. Nothing changes, and the answer is that of then.
	Repeated Decision = "repeated"
	// Ignored says that the request comes too late or does not fit, and that no money has moved. Nothing changes.
	Ignored Decision = "ignored"
	// Late says that money has moved after the end. It is recorded and to be refunded; the status stays.
	Late Decision = "late"
	// Mismatched says that money has moved that is not the session's amount. It is recorded and to be
	// refunded; the session stays pending.
	Mismatched Decision = "mismatched"
	// MerchantDeleted says that money has moved for a merchant that was deleted, and nobody could hear of it. It is recorded and to be
	// refunded; the status stays.
	MerchantDeleted Decision = "merchant_deleted"
	// RefundedAgain says that the same payment has been refused before. Nothing changes, and the answer is
	// that of then.
	RefundedAgain Decision = "refunded_again"
	// Conflict says that the request contradicts what is already so. Nothing changes.
	Conflict Decision = "conflict"
)

// Ended reports whether the session has ended as was wanted, now or before.
func (d Decision) Ended() bool { return d == Applied || d == Repeated }

// RefundRequired reports whether money has moved that the session does not take.
func (d Decision) RefundRequired() bool {
	return d == Late || d == Mismatched || d == MerchantDeleted || d == RefundedAgain
}

// PaymentState is what a session knows of a payment reference.
type PaymentState string

const (
	// PaymentUnknown is a reference that was not reported before.
	PaymentUnknown PaymentState = "unknown"
	// PaymentSettled is the one that settled the session.
	PaymentSettled PaymentState = "settled"
	// PaymentRefused is one whose money was recorded as to be refunded.
	PaymentRefused PaymentState = "refused"
)

// Cancel decides about a request to cancel a session of this status.
func Cancel(status Status) Decision {
	switch status {
	case Pending:
		return Applied
	case Cancelled:
		return Repeated
	default:
		return Conflict
	}
}

// Settle decides about a payment that had the outcome, Completed or Failed, for a session of this status.
// sameAmount compares the payment with the session or, when the reference was refused, with what was
// recorded of it then.
func Settle(status, outcome Status, payment PaymentState, sameAmount bool) Decision {
	paid := outcome == Completed
	switch {
	case payment == PaymentRefused && paid && sameAmount:
		return RefundedAgain
	case payment == PaymentRefused:
		return Conflict
	case payment == PaymentSettled && status == outcome && sameAmount:
		return Repeated
	case payment == PaymentSettled && status == Failed && paid:
		return Late // whatever its amount: the failure that ended the session had moved none
	case payment == PaymentSettled:
		return Conflict
	case status.Final() && paid:
		return Late
	case status.Final():
		return Ignored
	case sameAmount:
		return Applied
	case paid:
		return Mismatched
	default:
		return Ignored
	}
}

// SettleDeleted is Settle for a session whose merchant was deleted: money that was not reported before is refunded. What was answered
// before stays, and a payment that moved no money ends the session as ever.
func SettleDeleted(status, outcome Status, payment PaymentState, sameAmount bool) Decision {
	decision := Settle(status, outcome, payment, sameAmount)
	if outcome == Completed && (decision == Applied || decision == Late || decision == Mismatched) {
		return MerchantDeleted
	}
	return decision
}
