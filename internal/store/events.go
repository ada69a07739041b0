package store

import (
	"errors"
	"regexp"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// eventFormat is the format of an event's hash. It rises when an older dispatcher would misread an event.
const eventFormat = 1

// errUnsupported says that a newer program wrote an event: its format or its kind is not known here.
var errUnsupported = errors.New("an event of a newer version")

// What an event says, in the fields of its hash. They are written once. One-letter fields describe the event. Longer
// names describe its delivery.
//
//	V  eventFormat
//	k  kind              m  merchant id        i  session id, q  sequence, and f, s, x, e, r, y, w as in the
//	d  occurredAt, ms                             session (see fields.go), for session.*
//
//	r, v, w  paymentRef, amountCents and paidAt of the refused payment, for late_payment and payment_mismatch
//	n, K, P, G, C  merchant name, key id, prefix, generation and cause, for key.rotated
//
// rotationFields are those of key.rotated; event.lua writes those of a session.
func rotationFields(event outbox.Event) []any {
	fields := []any{
		"k", string(event.Kind), "d", event.OccurredAt.UnixMilli(), "m", event.MerchantID, "n", event.MerchantName,
		"K", event.Key.KeyID, "G", event.Key.Generation, "C", string(event.Key.Cause),
	}
	if event.Key.Prefix != "" {
		fields = append(fields, "P", event.Key.Prefix)
	}
	return fields
}

// kindForm is how a kind looks, known or not.
var kindForm = regexp.MustCompile(`^[a-z]+(\.[a-z_]+)+$`)

// eventOf decodes the hash of an event, whatever else is in it: name and value of each field, as
// (*reply).pairs reads them from an HGETALL. The error is ErrCorrupt, or errUnsupported with what is readable of the event.
func eventOf(id string, fields map[string]string) (outbox.Event, error) {
	read := &eventFields{fields: fields}
	event := outbox.Event{
		ID:         id,
		Kind:       v1alpha1.WebhookEvent(read.text("k")),
		OccurredAt: read.millis("d"),
		MerchantID: read.text("m"),
	}
	format, err := strconv.ParseInt(fields["V"], 10, 64)
	switch {
	case err != nil || format < 1:
		return outbox.Event{}, ErrCorrupt
	case format > eventFormat:
		return event, errUnsupported
	}
	switch event.Kind {
	case v1alpha1.EventKeyRotated:
		event.MerchantName, event.Key = read.text("n"), read.keyNews()
	case v1alpha1.EventLatePayment, v1alpha1.EventPaymentMismatch:
		event.Session = read.sessionNews(&event)
		event.Session.Payment = &outbox.RefusedPayment{
			Ref: read.text("r"), AmountCents: read.integer("v"), PaidAt: read.optionalMillis("w"),
		}
	case v1alpha1.EventSessionCreated, v1alpha1.EventSessionCompleted, v1alpha1.EventSessionFailed,
		v1alpha1.EventSessionExpired, v1alpha1.EventSessionCancelled:
		event.Session = read.sessionNews(&event)
		event.Session.PaymentRef, event.Session.PaidAt = fields["r"], read.optionalMillis("w")
	default:
		if !read.broken && kindForm.MatchString(string(event.Kind)) {
			return event, errUnsupported
		}
		read.broken = true
	}
	if read.broken {
		return outbox.Event{}, ErrCorrupt
	}
	return event, nil
}

// eventFields reads an event's fields one by one. What is missing or of another kind marks it as broken and
// reads as zero, so that a decoder checks once, at its end.
type eventFields struct {
	fields map[string]string
	broken bool
}

func (f *eventFields) text(name string) string {
	text, ok := f.fields[name]
	f.broken = f.broken || !ok
	return text
}

func (f *eventFields) integer(name string) int64 {
	number, err := strconv.ParseInt(f.text(name), 10, 64)
	f.broken = f.broken || err != nil
	return number
}

func (f *eventFields) millis(name string) time.Time { return time.UnixMilli(f.integer(name)).UTC() }

func (f *eventFields) optionalMillis(name string) time.Time {
	if _, ok := f.fields[name]; !ok {
		return time.Time{}
	}
	return f.millis(name)
}

func (f *eventFields) keyNews() *outbox.KeyNews {
	return &outbox.KeyNews{
		KeyID: f.text("K"), Prefix: f.fields["P"], Generation: f.integer("G"), Cause: v1alpha1.RotationCause(f.text("C")),
	}
}

// sessionNews reads what all events of a session say. How its own payment went is left out.
func (f *eventFields) sessionNews(event *outbox.Event) *outbox.SessionNews {
	id, err := session.ParseID(f.text("i"))
	told := session.Session{
		ID:        id,
		Status:    session.Pending,
		ExpiresAt: f.millis("x"),
		EndedAt:   f.optionalMillis("e"),
		Reason:    f.fields["y"],
	}
	if status, ended := f.fields["s"]; ended {
		told.Status = session.Status(status)
		f.broken = f.broken || !told.Status.Final()
	}
	facts, ok := fixedOf(f.text("f"))
	facts.complete(&told)
	event.MerchantName = told.MerchantName
	f.broken = f.broken || err != nil || !ok || told.MerchantID != event.MerchantID || told.Status.Final() == told.EndedAt.IsZero()
	return &outbox.SessionNews{Session: told, Sequence: f.integer("q")}
}
