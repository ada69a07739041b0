package apiserver

import (
	"net/http"
	"regexp"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// readPayment reads the body of a settlement, as strictly as that of a charge.
func readPayment(w http.ResponseWriter, r *http.Request) (session.Payment, error) {
	fields, err := readObject(w, r)
	if err != nil {
		return session.Payment{}, err
	}
	var payment session.Payment
	if payment.Ref, err = fields.text("paymentRef", session.PaymentRefRule); err != nil {
		return session.Payment{}, err
	}
	outcome, err := fields.text("outcome", session.OutcomeRule)
	if err != nil {
		return session.Payment{}, err
	}
	payment.Outcome = session.Status(outcome)
	amount, err := fields.cents("amountCents", session.AmountRule)
	if err != nil {
		return session.Payment{}, err
	}
	if amount != nil { // without one it is 0, which is none either
		payment.AmountCents = *amount
	}
	if payment.PaidAt, err = moment(fields, "paidAt", session.PaidAtRule); err != nil {
		return session.Payment{}, err
	}
	if payment.Reason, err = fields.text("reason", session.ReasonRule); err != nil {
		return session.Payment{}, err
	}
	return payment, payment.Validate()
}

// rfc3339Form refuses what time.Parse lets pass: a comma, an hour of one digit, an offset of a day.
var rfc3339Form = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// moment reads a time, to the millisecond: a Unix timestamp in milliseconds, as this API writes it, or a
// string of RFC 3339, as payment networks do. Zero: not given.
func moment(fields *object, name, rule string) (time.Time, error) {
	literal, given := fields.given(name)
	if !given {
		return time.Time{}, nil
	}
	var at time.Time
	if milliseconds, err := session.ParseCents(literal); err == nil { // any integer, however it is spelt
		at = time.UnixMilli(milliseconds)
	} else {
		written, err := fields.text(name, rule)
		if err != nil {
			return time.Time{}, err
		}
		if at, err = time.Parse(time.RFC3339, written); err != nil || !rfc3339Form.MatchString(written) {
			return time.Time{}, &session.FieldError{Field: name, Rule: rule}
		}
	}
	if at.IsZero() { // a time, but of the year 1
		return time.Time{}, &session.FieldError{Field: name, Rule: rule}
	}
	return at.UTC().Truncate(time.Millisecond), nil
}
