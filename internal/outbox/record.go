package outbox

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// recordVersion is the format of an event's hash. It rises when an older dispatcher would misread an event.
const recordVersion = 1

const (
	// retention is from the record of an event on, delivered or not.
	retention = 30 * 24 * time.Hour
	// rotationRetention is longer than any key should go without a rotation.
	rotationRetention = 400 * 24 * time.Hour
	// testRetention is longer than it takes to publish that a test was handled, which stops its repetition.
	testRetention = retention
)

// errUnsupported says that a newer program wrote an event: its format or its kind is not known here.
var errUnsupported = errors.New("an event of a newer version")

// The fields of an event. They are written once. One-letter fields describe the event. Longer
// names describe its delivery.
//
//	V  recordVersion
//	k  kind              m  account            i  session id, q  sequence, and f, s, x, e, r, y, w as in the
//	d  occurredAt, ms                             session (see store/record.go), for session.*
//
//	r, v, w  paymentRef, amountCents and paidAt of the refused payment, for late_payment and payment_mismatch
//	n, K, P, G, C  merchant name, key id, prefix, generation and cause, for key.rotated
//	n, T     merchant name and trigger, for webhook.test
//
// rotationFields are those of key.rotated; lib/sessions.lua of package store writes those of a session.
func rotationFields(event feed.Event) []any {
	fields := []any{
		"k", string(event.Kind), "d", event.OccurredAt.UnixMilli(), "m", event.Account(), "n", event.MerchantName,
		"K", event.Key.KeyID, "G", event.Key.Generation, "C", string(event.Key.Cause),
	}
	if event.Key.Prefix != "" {
		fields = append(fields, "P", event.Key.Prefix)
	}
	return fields
}

// kindForm is how a kind looks, known or not.
var kindForm = regexp.MustCompile(`^[a-z]+(\.[a-z_]+)+$`)

// ParseEvent decodes the hash of an event, whatever else is in it: name and value of each field, as
// redis.Reply.Map reads them from an HGETALL. The error is redis.ErrCorrupt, or errUnsupported with what is readable of the event.
func ParseEvent(id string, fields map[string]string) (feed.Event, error) {
	read := &eventFields{fields: fields}
	event := feed.Event{
		ID:         id,
		Kind:       v1alpha1.WebhookEvent(read.text("k")),
		OccurredAt: read.millis("d"),
	}
	event.MerchantID, event.TestMode = session.ParseAccount(read.text("m"))
	version, err := strconv.ParseInt(fields["V"], 10, 64)
	switch {
	case err != nil || version < 1:
		return feed.Event{}, redis.ErrCorrupt
	case version > recordVersion:
		return event, errUnsupported
	}
	switch event.Subject() {
	case feed.AboutKey:
		event.MerchantName, event.Key = read.text("n"), read.keyRotation()
	case feed.AboutTest:
		event.MerchantName, event.Test = read.text("n"), &feed.WebhookTest{Trigger: read.text("T")}
	case feed.AboutPayment:
		event.Session = read.sessionChange(&event)
		event.Session.Payment = &feed.RefusedPayment{
			Ref: read.text("r"), AmountCents: read.integer("v"), PaidAt: read.optionalMillis("w"),
		}
	case feed.AboutSession:
		event.Session = read.sessionChange(&event)
		event.Session.PaymentRef, event.Session.PaidAt = fields["r"], read.optionalMillis("w")
	default:
		if !read.broken && kindForm.MatchString(string(event.Kind)) {
			return event, errUnsupported
		}
		read.broken = true
	}
	if read.broken {
		return feed.Event{}, redis.ErrCorrupt
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

func (f *eventFields) keyRotation() *feed.KeyRotation {
	return &feed.KeyRotation{
		KeyID: f.text("K"), Prefix: f.fields["P"], Generation: f.integer("G"), Cause: v1alpha1.RotationCause(f.text("C")),
	}
}

// sessionChange reads what all events of a session have. How its own payment went is left out.
func (f *eventFields) sessionChange(event *feed.Event) *feed.SessionChange {
	id, err := session.ParseID(f.text("i"))
	read := session.Session{
		ID:        id,
		Status:    session.Pending,
		ExpiresAt: f.millis("x"),
		EndedAt:   f.optionalMillis("e"),
		Reason:    f.fields["y"],
	}
	if status, ended := f.fields["s"]; ended {
		read.Status = session.Status(status)
		f.broken = f.broken || !read.Status.Final()
	}
	record, ok := session.ParseRecord(f.text("f"))
	record.Complete(&read)
	event.MerchantName = read.MerchantName
	f.broken = f.broken || err != nil || !ok || read.MerchantID != event.MerchantID ||
		record.TestMode != event.TestMode || id.TestMode() != event.TestMode || read.Status.Final() == read.EndedAt.IsZero()
	return &feed.SessionChange{Session: read, Sequence: f.integer("q")}
}

// RecordRotation records the event, made by NewKeyRotated, unless that of this or a later issue
// of the key was recorded before. The first rotation that is seen of a key is recorded only if it is younger than an event is kept.
// It reports whether the event was recorded. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (o *Outbox) RecordRotation(ctx context.Context, event feed.Event, now time.Time) (bool, error) {
	args := []any{
		event.OccurredAt.UnixMilli(), rotationRetention.Milliseconds(), redis.Flag(now.Sub(event.OccurredAt) < retention), event.Account(),
	}
	key := redis.KeyspaceOf(event.Bucket()).Key(rotationKey, event.Key.KeyID)
	return o.record(ctx, rotationScript, event, key, append(args, rotationFields(event)...))
}

// RecordTest records the event, made by NewWebhookTest, unless it was the last one recorded of this merchant. It reports whether the
// event was recorded. Errors are those of RecordRotation.
func (o *Outbox) RecordTest(ctx context.Context, event feed.Event) (bool, error) {
	args := []any{
		event.ID, testRetention.Milliseconds(), event.MerchantID,
		"k", string(event.Kind), "d", event.OccurredAt.UnixMilli(), "m", event.MerchantID, "n", event.MerchantName, "T", event.Test.Trigger,
	}
	return o.record(ctx, testScript, event, redis.KeyspaceOf(event.Bucket()).Key(testKey, event.MerchantID), args)
}

// record runs a script that records an event unless lastKey says that it was.
func (o *Outbox) record(ctx context.Context, script *redis.Script, event feed.Event, lastKey string, args []any) (bool, error) {
	space := redis.KeyspaceOf(event.Bucket())
	keys := []string{space.Key(QueueKey), space.Key(DueKey), space.Key(EventKey, event.ID), lastKey}
	reply, err := o.redis.Run(ctx, script, keys, args...)
	if err != nil {
		return false, fmt.Errorf("record a %s event: %w", event.Kind, err)
	}
	reply.OK()
	recorded := reply.Int() == 1
	if err := reply.Err(); err != nil {
		return false, fmt.Errorf("record a %s event: %w", event.Kind, err)
	}
	return recorded, nil
}

// WriteKeys writes the keys of a script that may have to record the event with this mark among those of a session: the event, the
// queue and its due merchants.
func WriteKeys(call *redis.Call, space redis.Keyspace, id session.ID, mark feed.Mark) {
	call.Key(space, EventKey, "evt_", strings.TrimPrefix(id.String(), "ps_"), "_", string(mark)) // SessionEventID in one
	call.Key(space, QueueKey)
	call.Key(space, DueKey)
}
