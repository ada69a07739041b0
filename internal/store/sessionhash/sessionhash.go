// Package sessionhash is how a session stands in Redis: the key of its hash, the fields, and how they are read. It runs no script.
package sessionhash

import (
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Key + session id is the hash of one session.
const Key = "session:"

// The fields of a session's hash. They are few and short, for each costs Redis time and memory with each session: what no script needs on its own
// is in one, the record. A payment is "<rail> <paymentRef>", a refund "<rail> <refundRef>".

// sessionFields are the fields of a whole session, in the order in which Parse decodes them.
var sessionFields = redis.Fields{
	{Name: "STATUS", Field: "s"},     // if it is final
	{Name: "EXPIRES_AT", Field: "x"}, // ms
	{Name: "ENDED_AT", Field: "e"},   // ms, if it has ended
	{Name: "RECORD", Field: "f"},     // see session.Record
	// The customer's address, if given, and behind a tab the time zone of the receipt: until it was sent, or the session has ended unpaid.
	{Name: "EMAIL", Field: "u"},
	// Of the payment that settled the session, if given: the payment, the reason of its failure, and when it was paid in ms.
	{Name: "PAYMENT_REF", Field: "r"},
	{Name: "REASON", Field: "y"},
	{Name: "PAID_AT", Field: "w"},
}

// recordAt is the place of the record among them.
const recordAt = 3

// publicFields are those of them that a payer's request needs.
var publicFields = redis.Fields{{Name: "STATUS", Field: "s"}, {Name: "EXPIRES_AT", Field: "x"}, {Name: "RECORD", Field: "f"}, {Name: "ENDED_AT", Field: "e"}, {Name: "LISTED", Field: "n"}}

// merchantFields are sessionFields with LISTED in the place of the address, which no merchant reads.
var merchantFields = redis.Fields{
	{Name: "STATUS", Field: "s"}, {Name: "EXPIRES_AT", Field: "x"}, {Name: "ENDED_AT", Field: "e"}, {Name: "RECORD", Field: "f"}, {Name: "LISTED", Field: "n"}, {Name: "PAYMENT_REF", Field: "r"}, {Name: "REASON", Field: "y"}, {Name: "PAID_AT", Field: "w"},
}

// What some fields begin with. The payment, refund or rail that they are of follows.
const (
	RefusedField  = "l:"
	RefundField   = "b:"
	RequestField  = "a:"
	FailuresField = "k:"
)

// otherFields are the fields of a session that most sessions do not have.
var otherFields = redis.Fields{
	{Name: "SEQUENCE", Field: "q"}, // of the last event, if there was one
	// REFUSED<payment> is a refused payment: "<late, mismatched or merchant_deleted> <amountCents> <paidAt, ms, or 0>", and " <currency>" if that is not
	// the session's.
	{Name: "REFUSED", Field: RefusedField},
	// LISTED says that the session has refused payments, refunds, requests for them or failures, so that a reader needs all fields. Its value is how many
	// refused payments there are, maybe 0.
	{Name: "LISTED", Field: "n"},
	{Name: "MERCHANT_DELETED", Field: "d"}, // if one of them was refused as merchant_deleted: the session accepts no further payment
	{Name: "REFUND", Field: RefundField},   // REFUND<refund> is a refund: "<amountCents> <when it was recorded, ms> <payment>"
	{Name: "REQUEST", Field: RequestField}, // REQUEST<refund id> is a merchant's request for a refund; see lib/refunds.lua
	{Name: "REFUNDED", Field: "g"},         // how much of the payment that completed the session was refunded, if any
	{Name: "HOLD", Field: "h"},             // who holds the session: "<until, ms> <payment>"
	{Name: "HELD", Field: "h:"},            // HELD<rail> is how long a rail has held it, ms: the whole of each hold that was not released
	// FAILURES<rail> are payments of a rail that failed while another one held the session, of its amount: "\n<paymentRef>\n<paymentRef>\n".
	{Name: "FAILURES", Field: FailuresField},
	{Name: "AMOUNT", Field: "v"}, // only in an event, see feed.SessionFields
}

// Constants are the constants of scripts that read or change sessions.
var Constants = redis.Constants{
	"const": {
		"MERCHANT_FIELDS": merchantFields.List(),
		"PUBLIC_FIELDS":   publicFields.List(),
		"RECORD_AMOUNT":   recordPattern(session.RecordAmount, "%d+"),
		"RECORD_CURRENCY": recordPattern(session.RecordCurrency, "%u*"),
		"SESSION_FIELDS":  sessionFields.List(),
	},
	"at":    sessionFields.Places(),
	"field": sessionFields.Names(),
}.With(redis.Constants{"at": merchantFields.Places(), "field": otherFields.Names()})

// recordPattern is a Lua pattern that finds the value of this form at a place of a record.
func recordPattern(place int, form string) string {
	return `'^[^\t]+` + strings.Repeat(`\t[^\t]*`, place-1) + `\t(` + form + `)\t'`
}

// Found reports whether there is a session, whatever is wrong with it.
func Found(fields *redis.Reply) bool { return fields.TextAt(recordAt) != "" }

// Parse decodes the fields const.SESSION_FIELDS of a session. The error is redis.ErrCorrupt.
func Parse(id session.ID, fields *redis.Reply) (session.Session, error) {
	read := session.Session{
		ID:        id,
		Status:    ParseStatus(fields),
		ExpiresAt: fields.Millis(),
		EndedAt:   fields.OptionalMillis(),
	}
	record, ok := session.ParseRecord(fields.Text())
	address, zone, _ := strings.Cut(fields.OptionalText(), "\t")
	read.Charge.CustomerEmail, read.TimeZone = session.UnescapeTab(address), zone
	if payment := fields.OptionalText(); payment != "" {
		var scoped bool
		read.PaymentRail, read.PaymentRef, scoped = session.ParseScoped(payment)
		fields.Require(scoped)
	}
	read.Reason, read.PaidAt = fields.OptionalText(), fields.OptionalMillis()
	record.Complete(&read)
	if !ok || record.MerchantID != id.MerchantID() || record.TestMode != id.TestMode() || fields.Err() != nil || read.Status.Final() == read.EndedAt.IsZero() {
		return session.Session{}, redis.ErrCorrupt
	}
	return read, nil
}

// ParseStatus reads the status; a pending session has none written down.
func ParseStatus(fields *redis.Reply) session.Status {
	if fields.Absent() {
		return session.Pending
	}
	status := session.Status(fields.Text())
	fields.Require(status.Final())
	return status
}
