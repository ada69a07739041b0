package session

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	maxPaymentRefLength = 128
	maxReasonCharacters = 255
)

// MaxReportedCents is the largest amount that a rail can report. It is far above that of a charge, because money that has moved is recorded, and
// other currencies have other amounts. Lua, JSON and the formatting of amounts keep it exact, and the sum of two.
const MaxReportedCents = 1_000_000_000_000_000

// The rules of a report's fields, worded to follow the field's name.
const (
	PaymentRefRule     = "must be a string of 1 to 128 visible ASCII characters"
	ReportedAmountRule = "must be an integer from 1 to 1000000000000000"
	OutcomeRule        = "must be COMPLETED or FAILED"
	PaidAtRule         = "must be a time from 2020 to 9999, as Unix milliseconds (not seconds) or an RFC 3339 string"
	CurrencyRule       = "must be an ISO 4217 code, such as EUR"
	ReasonRule         = "must be a string of at most 255 characters without control characters"
)

// Rail names who reports payments, in what is stored and in the ids of events. References are each rail's own: the same one of two rails
// names two payments.
type Rail string

// TestRail is the rail of test mode. No account has its name.
const TestRail Rail = "test"

// NewRail returns the name of an account as a rail: 22 characters, for the account's own name may be long.
func NewRail(account string) Rail {
	digest := sha256.Sum256([]byte(account))
	return Rail(base64.RawURLEncoding.EncodeToString(digest[:16]))
}

// Scope returns the name of a payment among those of all rails: "<rail> <reference>".
func (r Rail) Scope(ref string) string { return string(r) + " " + ref }

// ParseScoped is the inverse of Rail.Scope; false: the text is no such name.
func ParseScoped(text string) (rail Rail, ref string, ok bool) {
	name, ref, ok := strings.Cut(text, " ")
	return Rail(name), ref, ok
}

// Payment is what a rail reports: how one attempt to pay a session ended.
type Payment struct {
	// Rail reports it, and Ref names the attempt: chosen by the rail, and repeated with each report of it.
	Rail Rail
	Ref  string
	// Outcome is Completed when money has moved, and Failed when none has and none will.
	Outcome     Status
	AmountCents int64
	// Currency is that of the amount; empty: the session's.
	Currency string
	// PaidAt is as the rail says, to the millisecond; zero: it did not say.
	PaidAt time.Time
	// Reason says why the payment failed, for people; empty: not given.
	Reason string
}

// How long a rail may hold a session.
const (
	// MaxHold is the most it may ask for at once.
	MaxHold = 120 * time.Second
	// MaxHeld is the most in all, whatever its payments.
	MaxHeld = 10 * time.Minute
)

// HoldRule is the rule of a hold's duration in seconds.
var HoldRule = fmt.Sprintf("must be an integer from 0 to %.0f", MaxHold.Seconds())

// ValidateHold checks what a rail says when it holds a session; the error is as that of Validate.
func ValidateHold(ref string, seconds int64) error {
	switch {
	case !validPaymentRef(ref):
		return &FieldError{Field: "paymentRef", Rule: PaymentRefRule}
	case seconds < 0 || seconds > int64(MaxHold/time.Second):
		return &FieldError{Field: "seconds", Rule: HoldRule}
	}
	return nil
}

// Validate checks every field; the error is a *FieldError for the first that breaks its rule.
func (p Payment) Validate() error {
	switch {
	case !validPaymentRef(p.Ref):
		return &FieldError{Field: "paymentRef", Rule: PaymentRefRule}
	case p.Outcome != Completed && p.Outcome != Failed:
		return &FieldError{Field: "outcome", Rule: OutcomeRule}
	case p.AmountCents < 1 || p.AmountCents > MaxReportedCents:
		return &FieldError{Field: "amountCents", Rule: ReportedAmountRule}
	case !validCurrency(p.Currency):
		return &FieldError{Field: "currency", Rule: CurrencyRule}
	case !p.PaidAt.IsZero() && !ValidTime(p.PaidAt):
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

// validCurrency accepts every code, also one that no merchant can have: its money has moved.
func validCurrency(s string) bool {
	notCapital := func(r rune) bool { return r < 'A' || r > 'Z' }
	return s == "" || len(s) == 3 && !strings.ContainsFunc(s, notCapital)
}

func validReason(s string) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxReasonCharacters &&
		!strings.ContainsFunc(s, unicode.IsControl)
}
