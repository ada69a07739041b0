package feed

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Version is the format of a stored event. It rises when an older program would misread an event. Every format begins with the
// version, the kind and the time.
const Version = 1

var (
	// ErrMalformed says that a text is no stored event.
	ErrMalformed = errors.New("not a stored event")
	// ErrUnsupported says that a newer program stored the event: its format or its kind is not known here.
	ErrUnsupported = errors.New("an event of a newer version")
)

// SessionFields are what is stored of a session in its event, by the names of the session's own fields in Redis (package sessionhash). The record, f, is
// the last, on a line of its own. Some differ from the session's:
//
//	v  of a refused payment or a refund: its amount, and behind a space its currency if that is not the session's; empty otherwise
//	r  of a refund: the payment
//	y  of a refund: "<amount of the payment> <sum of its refunds> <refundRef>"; of a request for one, or of a rejection, also " <reason>"
//	w  of a refund: empty
var SessionFields = [...]string{"s", "x", "e", "r", "y", "v", "w", "f"}

// Append appends the event as it is stored: texts, each after a tab but the first. Those of a session are written by the script that
// changes it (lib/sessions.lua of package store). A later release appends texts and changes none, to the event or to the record: a
// reader ignores what it does not know, and reads a text that a shorter event lacks as empty if it was appended later.
//
//	version, kind, occurredAt in ms, and then
//	session.*     random part of the session id, sequence, SessionFields, with a line feed before the record; e is empty if the session ended when the event occurred, r is
//	              "<rail> <paymentRef>" if there was a payment
//	key.rotated   key id, prefix, generation, cause, merchant name
//	webhook.test  trigger, merchant name
func (e Event) Append(to []byte) []byte {
	to = append(strconv.AppendInt(to, Version, 10), '\t')
	to = append(append(to, e.Kind...), '\t')
	to = strconv.AppendInt(to, e.OccurredAt.UnixMilli(), 10)
	var texts []string
	switch {
	case e.Key != nil:
		texts = []string{e.Key.KeyID, e.Key.Prefix, strconv.FormatInt(e.Key.Generation, 10), string(e.Key.Cause), e.MerchantName}
	case e.Test != nil:
		texts = []string{e.Test.Trigger, e.MerchantName}
	}
	for _, text := range texts {
		to = append(append(to, '\t'), session.EscapeTab(text)...)
	}
	return to
}

// kindForm is how a kind looks, known or not.
var kindForm = regexp.MustCompile(`^[a-z]+(\.[a-z_]+)+$`)

// Parse reads an event of the account as it is stored. The error is ErrMalformed, or ErrUnsupported with kind, account and time of the
// event.
func Parse(account, text string) (Event, error) {
	stored := &texts{rest: text, more: true}
	version := stored.count()
	event := Event{Kind: v1alpha1.WebhookEvent(stored.next()), OccurredAt: stored.millis()}
	event.MerchantID, event.TestMode = session.ParseAccount(account)
	if stored.broken || version < 1 || !kindForm.MatchString(string(event.Kind)) {
		return Event{}, ErrMalformed
	}
	if version > Version || event.Subject() == 0 {
		return event, ErrUnsupported
	}
	switch event.Subject() {
	case AboutKey:
		event.Key = &KeyRotation{
			KeyID: stored.text(), Prefix: stored.text(), Generation: stored.count(), Cause: v1alpha1.RotationCause(stored.text()),
		}
		event.MerchantName = stored.text()
		event.ID = keyEventID(event.Key, event.OccurredAt)
	case AboutTest:
		event.Test = &WebhookTest{Trigger: stored.text()}
		event.MerchantName = stored.text()
		event.ID = testEventID(event.MerchantID, event.Test.Trigger)
	case AboutSession, AboutPayment, AboutRefund:
		stored.session(&event, account)
	}
	if stored.broken {
		return Event{}, ErrMalformed
	}
	return event, nil
}

// texts reads a stored event text by text. One that is missing or of another kind breaks it and reads as zero, so that Parse checks
// once, at its end.
type texts struct {
	rest         string
	more, broken bool
}

func (t *texts) next() string {
	t.broken = t.broken || !t.more
	var text string
	text, t.rest, t.more = strings.Cut(t.rest, "\t")
	return text
}

func (t *texts) text() string { return session.UnescapeTab(t.next()) }

func (t *texts) count() int64 { return t.parse(t.next()) }

func (t *texts) parse(text string) int64 {
	number, err := strconv.ParseInt(text, 10, 64)
	t.broken = t.broken || err != nil || number < 0
	return number
}

func (t *texts) millis() time.Time { return time.UnixMilli(t.count()).UTC() }

// optional reads a number, or ends with false if the text is empty.
func (t *texts) optional() (int64, bool) {
	text := t.next()
	if text == "" {
		return 0, false
	}
	return t.parse(text), true
}

func (t *texts) optionalMillis() time.Time {
	if ms, given := t.optional(); given {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

// payment reads a payment's name; it is empty if there is none.
func (t *texts) payment() (rail session.Rail, ref string) {
	text := t.next()
	if text == "" {
		return "", ""
	}
	rail, ref, ok := session.ParseScoped(text)
	t.broken = t.broken || !ok
	return rail, ref
}

// money reads an amount, and its currency if that is not the session's, or ends with false if the text is empty.
func (t *texts) money() (cents int64, currency string, given bool) {
	amount, currency, other := strings.Cut(t.next(), " ")
	if amount == "" {
		return 0, "", false
	}
	cents, err := strconv.ParseInt(amount, 10, 64)
	t.broken = t.broken || err != nil || cents < 0 || other && currency == ""
	return cents, currency, true
}

// session reads what all events of a session have, and its id. How its own payment went is not in the event of a refused one.
func (t *texts) session(event *Event, account string) {
	var record string
	t.rest, record, _ = strings.Cut(t.rest, "\n")
	id, err := session.ParseID(session.IDPrefix(session.ParseAccount(account)) + t.next())
	change := &SessionChange{Sequence: t.count()}
	event.Session = change
	read := &change.Session
	read.ID, read.Status = id, session.Status(t.next())
	read.ExpiresAt, read.EndedAt = t.millis(), t.optionalMillis()
	rail, ref := t.payment()
	reason := t.next()
	amount, currency, refused := t.money()
	paidAt := t.optionalMillis()
	fixed, ok := session.ParseRecord(record)

	switch {
	case read.Status == "":
		read.Status = session.Pending
	case !read.Status.Final():
		t.broken = true
	case read.EndedAt.IsZero():
		read.EndedAt = event.OccurredAt
	}
	fixed.Complete(read)
	switch subject := event.Subject(); {
	case subject == AboutRefund && refused && paidAt.IsZero():
		refund := session.Refund{Rail: rail, PaymentRef: ref, AmountCents: amount, At: event.OccurredAt}
		change.Refund = t.refund(Refund{Refund: refund, Currency: cmp.Or(currency, read.Currency)}, reason, event.Kind == v1alpha1.EventPaymentRefunded)
	case refused && subject == AboutPayment:
		read.Reason, change.Payment = reason, &session.Payment{
			Rail: rail, Ref: ref, Outcome: session.Completed, AmountCents: amount, Currency: cmp.Or(currency, read.Currency), PaidAt: paidAt,
		}
	case refused, subject != AboutSession:
		t.broken = true
	default:
		read.Reason, read.PaymentRail, read.PaymentRef, read.PaidAt = reason, rail, ref, paidAt
	}
	event.MerchantName = read.MerchantName
	event.ID = SessionEventID(id, event.mark(rail, ref))
	t.broken = t.broken || err != nil || !ok || session.Account(fixed.MerchantID, fixed.TestMode) != account ||
		read.Status.Final() == read.EndedAt.IsZero() || !refused && event.Kind != kinds[read.Status] || refused && ref == ""
}

// refund reads what only the event of a refund has, which was confirmed or not.
func (t *texts) refund(refund Refund, text string, confirmed bool) *Refund {
	words := strings.SplitN(text, " ", 4)
	t.broken = t.broken || len(words) < 3 || confirmed && len(words) > 3
	if t.broken {
		return &refund
	}
	refund.PaymentCents, refund.RefundedCents, refund.Ref = t.parse(words[0]), t.parse(words[1]), words[2]
	if !confirmed {
		refund.At = time.Time{}
	}
	if len(words) > 3 {
		refund.Reason = session.UnescapeTab(words[3])
	}
	t.broken = t.broken || refund.Ref == "" || refund.AmountCents < 1 || refund.PaymentCents < refund.RefundedCents ||
		refund.PaymentCents < refund.AmountCents || confirmed && refund.RefundedCents < refund.AmountCents
	return &refund
}

// kinds are those of the events of a session itself, by the status that it came to.
var kinds = map[session.Status]v1alpha1.WebhookEvent{
	session.Pending:   v1alpha1.EventSessionCreated,
	session.Completed: v1alpha1.EventSessionCompleted,
	session.Failed:    v1alpha1.EventSessionFailed,
	session.Expired:   v1alpha1.EventSessionExpired,
	session.Cancelled: v1alpha1.EventSessionCancelled,
}

// mark is that of a session's event, which may be about a payment.
func (e Event) mark(rail session.Rail, paymentRef string) Mark {
	switch e.Kind {
	case v1alpha1.EventSessionCreated:
		return MarkCreated
	case v1alpha1.EventLatePayment:
		return MarkLate(rail, paymentRef)
	case v1alpha1.EventPaymentMismatch:
		return MarkMismatch(rail, paymentRef)
	case v1alpha1.EventPaymentRefunded:
		if e.Session.Refund == nil {
			return ""
		}
		return MarkRefund(rail, e.Session.Refund.Ref)
	case v1alpha1.EventRefundRequested, v1alpha1.EventRefundRejected:
		if e.Session.Refund == nil {
			return ""
		}
		if e.Kind == v1alpha1.EventRefundRequested {
			return MarkRefundRequested(e.Session.Refund.Ref)
		}
		return MarkRefundRejected(e.Session.Refund.Ref)
	default:
		return MarkEnded
	}
}
