package store

import (
	"strconv"

	"github.com/merchant-operator/merchant-operator/apiserver/session"
)

// The fields of a session's hash. Their names are short, for Redis stores them with each session.
//
//	s  status                 m  merchant id       o  orderRef, if given
//	c  createdAt, ms          n  merchant name     t  taxCents, if given
//	x  expiresAt, ms          a  amountCents       p  tipCents, if given
//	e  endedAt, ms, if ended                       u  customerEmail, if given
//
//	r  paymentRef, y  reason of the failure, w  paidAt, ms: of the payment that settled it, if given
//	q  sequence of the last event, if there was one
//	l:<paymentRef>  a refused payment: "<late or mismatched> <amountCents> <paidAt, ms, or 0>"
//
// createFields are those the creator knows; create.lua adds s, c and x, by the clock of Redis.
func createFields(merchantID string, wanted NewSession) []any {
	charge := wanted.Charge
	fields := []any{"m", merchantID, "n", wanted.MerchantName, "a", charge.AmountCents}
	if charge.OrderRef != "" {
		fields = append(fields, "o", charge.OrderRef)
	}
	if charge.TaxCents != nil {
		fields = append(fields, "t", *charge.TaxCents)
	}
	if charge.TipCents != nil {
		fields = append(fields, "p", *charge.TipCents)
	}
	if charge.CustomerEmail != "" {
		fields = append(fields, "u", charge.CustomerEmail)
	}
	return fields
}

// sessionOf decodes the fields in the order in which read_session in expiry.lua returns them.
func sessionOf(id session.ID, fields *reply) (session.Session, error) {
	read := session.Session{
		ID:           id,
		Status:       fields.status(),
		ExpiresAt:    fields.millis(),
		EndedAt:      fields.optionalMillis(),
		CreatedAt:    fields.millis(),
		MerchantID:   fields.text(),
		MerchantName: fields.text(),
		Charge: session.Charge{
			AmountCents:   fields.integer(),
			OrderRef:      fields.optionalText(),
			TaxCents:      fields.optionalInteger(),
			TipCents:      fields.optionalInteger(),
			CustomerEmail: fields.optionalText(),
		},
		PaymentRef: fields.optionalText(),
		Reason:     fields.optionalText(),
		PaidAt:     fields.optionalMillis(),
	}
	if fields.broken || read.Status.Final() == read.EndedAt.IsZero() {
		return session.Session{}, ErrCorrupt
	}
	return read, nil
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
