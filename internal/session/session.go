// Package session owns the domain of a payment session: what may be charged, how a session is
// named, which states it has and what ends it, and when two create requests are the same charge. It
// is pure and imports the standard library only: it knows neither HTTP nor Redis.
package session

import "time"

// Status is where a session stands, in the spelling callers see.
type Status string

// A session is Pending until it becomes, once and permanently, one of the others.
const (
	Pending   Status = "PENDING"
	Completed Status = "COMPLETED"
	Failed    Status = "FAILED"
	Expired   Status = "EXPIRED"
	Cancelled Status = "CANCELLED"
)

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
	Currency string
	Charge   Charge
	// TimeZone is the IANA name of its merchant's zone when the session was created. It is known while Charge.CustomerEmail is, for the receipt.
	TimeZone  string
	CreatedAt time.Time
	ExpiresAt time.Time
	// EndedAt is when the status became final; zero while the session is pending.
	EndedAt time.Time
	// PaymentRef names the payment that completed or failed the session, among those of PaymentRail; empty: none did.
	PaymentRef  string
	PaymentRail Rail
	// Reason says why that payment failed, in the rail's words; empty: it did not, or the rail did not say.
	Reason string
	// PaidAt is when that payment was made, as the rail says; zero: the rail did not say.
	PaidAt time.Time
}

// Payment returns the payment that completed or failed the session, if PaymentRef names one.
func (s *Session) Payment() Payment {
	return Payment{
		Rail: s.PaymentRail, Ref: s.PaymentRef, Outcome: s.Status, AmountCents: s.Charge.AmountCents, Currency: s.Currency, PaidAt: s.PaidAt, Reason: s.Reason,
	}
}
