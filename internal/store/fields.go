package store

import (
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// The fields of a session's hash. They are few, for each costs Redis time and memory with each session: what no script needs
// by itself is in one. Their names are short for the same reason.
//
//	f  what never changes, see fixed     s  status, if it is final
//	x  expiresAt, ms                     e  endedAt, ms, if it is
//	u  customerEmail, if given
//
//	r  paymentRef, y  reason of the failure, w  paidAt, ms: of the payment that settled it, if given
//	q  sequence of the last event, if there was one
//	l:<paymentRef>  a refused payment: "<late or mismatched> <amountCents> <paidAt, ms, or 0>"

// fixed is what never changes of a session and may be told to anyone the merchant is told to. It is written
//
//	<merchant id> <amountCents> <lifetime, ms> <taxCents or -> <tipCents or -> <bytes of the merchant name> <name><orderRef>
type fixed struct {
	merchantID, merchantName string
	lifetime                 time.Duration
	charge                   session.Charge
}

// fixed writes what createCall knows of a session; create.lua adds expiresAt by the clock of Redis.
func (w *words) fixed(merchantID string, wanted *NewSession) {
	charge := wanted.Charge
	w.text.WriteString(merchantID)
	for _, n := range [...]int64{charge.AmountCents, wanted.Lifetime.Milliseconds()} {
		w.text.WriteByte(' ')
		w.digits(n)
	}
	for _, cents := range [...]*int64{charge.TaxCents, charge.TipCents} {
		w.text.WriteByte(' ')
		if cents == nil {
			w.text.WriteByte('-')
		} else {
			w.digits(*cents)
		}
	}
	w.text.WriteByte(' ')
	w.digits(int64(len(wanted.MerchantName)))
	w.text.WriteByte(' ')
	w.text.WriteString(wanted.MerchantName)
	w.text.WriteString(charge.OrderRef)
	w.end()
}

func fixedOf(text string) (read fixed, ok bool) {
	ok = true
	word := func() string {
		var next string
		var found bool
		next, text, found = strings.Cut(text, " ")
		ok = ok && found
		return next
	}
	number := func(digits string) int64 {
		n, err := strconv.ParseInt(digits, 10, 64)
		ok = ok && err == nil && n >= 0
		return n
	}
	part := func() *int64 {
		if digits := word(); digits != "-" {
			return new(number(digits))
		}
		return nil
	}
	read.merchantID = word()
	read.charge.AmountCents = number(word())
	read.lifetime = time.Duration(number(word())) * time.Millisecond
	read.charge.TaxCents, read.charge.TipCents = part(), part()
	length := number(word())
	if !ok || read.merchantID == "" || length > int64(len(text)) {
		return fixed{}, false
	}
	read.merchantName, read.charge.OrderRef = text[:length], text[length:]
	return read, true
}

// complete fills in what is fixed of a session whose expiresAt is known.
func (f fixed) complete(read *session.Session) {
	read.MerchantID, read.MerchantName, read.Charge = f.merchantID, f.merchantName, f.charge
	read.CreatedAt = read.ExpiresAt.Add(-f.lifetime)
}

// The place of fixed among the fields in the order in which read_session in expiry.lua returns them.
const fixedAt = 3

// ownedBy tells whose session this is, whatever else is wrong with it. One that is missing is nobody's.
func ownedBy(merchantID string, fields *reply) bool {
	if len(fields.rest) <= fixedAt {
		return false
	}
	text, _ := fields.rest[fixedAt].(string)
	owner, _, _ := strings.Cut(text, " ")
	return owner == merchantID
}

// sessionOf decodes the fields in the order in which read_session in expiry.lua returns them.
func sessionOf(id session.ID, fields *reply) (session.Session, error) {
	read := session.Session{
		ID:        id,
		Status:    fields.status(),
		ExpiresAt: fields.millis(),
		EndedAt:   fields.optionalMillis(),
	}
	facts, ok := fixedOf(fields.text())
	facts.charge.CustomerEmail = fields.optionalText()
	read.PaymentRef, read.Reason, read.PaidAt = fields.optionalText(), fields.optionalText(), fields.optionalMillis()
	facts.complete(&read)
	if !ok || fields.broken || read.Status.Final() == read.EndedAt.IsZero() {
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
