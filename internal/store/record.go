package store

import (
	"strconv"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// The fields of a session's hash. They are few and their names short, for each costs Redis time and memory with each session: what
// no script needs on its own is in one, the record.
//
//	f  record, see session.Record        s  status, if it is final
//	x  expiresAt, ms                     e  endedAt, ms, if it is
//	u  customerEmail, if given, until its receipt was sent
//
//	r  payment, y  reason of the failure, w  paidAt, ms: of the payment that settled it, if given. A payment is "<rail> <paymentRef>"
//	q  sequence of the last event, if there was one
//	l:<payment>  a refused payment: "<late, mismatched or merchant_deleted> <amountCents> <paidAt, ms, or 0>", and " <currency>" if
//	        that is not the session's
//	n  how many of them there are; also there, maybe as 0, if there are refunds or failures
//	d  if one of them was refused as merchant_deleted: the session accepts no further payment
//	b:<refund>  a refund, "<rail> <refundRef>": "<amountCents> <when it was recorded, ms> <payment>"
//	g  how much of the payment that completed the session was refunded, if any
//	h  who holds it: "<until, ms> <payment>"
//	h:<rail>  how long a rail has held it, ms: the whole of each hold that was not released
//	k:<rail>  payments of a rail that failed while another one held it, of the session's amount: "\n<paymentRef>\n<paymentRef>\n"

// sessionFields are those of a whole session, in the order in which parseSession decodes them.
var sessionFields = redis.NewFields("SESSION_FIELDS",
	"STATUS=s", "EXPIRES_AT=x", "ENDED_AT=e", "RECORD=f", "EMAIL=u", "PAYMENT_REF=r", "REASON=y", "PAID_AT=w")

const (
	// recordAt is the place of the record among them.
	recordAt = 3
	// publicFields are those of them that a payer's request needs.
	publicFields = "'s', 'x', 'f', 'e'"
)

// merchantFields are sessionFields with n in the place of the address, which no merchant reads.
var merchantFields = redis.NewFields("MERCHANT_FIELDS",
	"STATUS=s", "EXPIRES_AT=x", "ENDED_AT=e", "RECORD=f", "LISTED=n", "PAYMENT_REF=r", "REASON=y", "PAID_AT=w")

// eventFields are those of an event of a session.
var eventFields = "'" + strings.Join(feed.SessionFields[:], "', '") + "'"

// recordPattern is a Lua pattern that finds the value of this form at a place of a record.
func recordPattern(place int, form string) string {
	return `'^[^\t]+` + strings.Repeat(`\t[^\t]*`, place-1) + `\t(` + form + `)\t'`
}

// found reports whether there is a session, whatever is wrong with it.
func found(fields *redis.Reply) bool { return fields.TextAt(recordAt) != "" }

// sessionError reads the first word of a reply about one session: whether it is there and can be read.
func sessionError(reply *redis.Reply) error {
	switch reply.Text() {
	case "OK":
		return nil
	case "NOT_FOUND":
		return ErrNotFound
	default: // "CORRUPT" among them
		return redis.ErrCorrupt
	}
}

// parseSession decodes the fields in the order of sessionFields.
func parseSession(id session.ID, fields *redis.Reply) (session.Session, error) {
	read := session.Session{
		ID:        id,
		Status:    parseStatus(fields),
		ExpiresAt: fields.Millis(),
		EndedAt:   fields.OptionalMillis(),
	}
	record, ok := session.ParseRecord(fields.Text())
	read.Charge.CustomerEmail = fields.OptionalText()
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

// parseStatus reads the status; a pending session has none written down.
func parseStatus(fields *redis.Reply) session.Status {
	if fields.Absent() {
		return session.Pending
	}
	status := session.Status(fields.Text())
	fields.Require(status.Final())
	return status
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
