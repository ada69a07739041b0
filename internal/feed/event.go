package feed

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Event is a message to a merchant about one change. It never changes once it is recorded, so that every
// attempt to deliver it sends the same bytes.
type Event struct {
	// ID is the webhook-id: derived from what happened, so that one change cannot become two events.
	ID   string
	Kind v1alpha1.WebhookEvent
	// MerchantID is the bare id, without the "mer_" people see; MerchantName is the name payers see.
	MerchantID, MerchantName string
	// TestMode: it is about a session of test mode, or a test key. Such events have a queue of their own, and say so.
	TestMode   bool
	OccurredAt time.Time
	// Session is the subject of a session.* event, else nil.
	Session *SessionChange
	// Key is the subject of key.rotated, else nil.
	Key *KeyRotation
	// Test is the subject of webhook.test, else nil.
	Test *WebhookTest
}

// Bucket is where the event is kept: with everything else of its merchant.
func (e Event) Bucket() session.Bucket { return session.MerchantBucket(e.MerchantID) }

// Account is in whose queue the event is.
func (e Event) Account() string { return session.Account(e.MerchantID, e.TestMode) }

// SessionChange is a session as it was right after the change.
type SessionChange struct {
	session.Session
	// Sequence numbers the events of one session from 1, in the order of its changes.
	Sequence int64
	// Payment is the subject of session.late_payment and session.payment_mismatch, else nil: money that
	// arrived, did not settle the session, and is to be refunded.
	Payment *session.Payment
	// Refund is the subject of session.payment_refunded, refund_requested and refund_rejected, else nil.
	Refund *Refund
}

// Refund is a refund with its payment.
type Refund struct {
	session.Refund

	// Currency is the ISO 4217 code of the payment's currency.
	Currency string
	// PaymentCents is the amount of the payment, RefundedCents the sum of its refunds so far, this one among them once it is confirmed.
	PaymentCents, RefundedCents int64
	// Reason is why a merchant asks for it, or its rail rejects it; empty: not given.
	Reason string
}

// KeyRotation is the API key in force after a rotation, without anything secret.
type KeyRotation struct {
	KeyID string
	// Prefix is the beginning of the new key; empty for an externally generated key.
	Prefix     string
	Generation int64
	Cause      v1alpha1.RotationCause
}

// WebhookTest is what the platform team asked for: an event to try the endpoint.
type WebhookTest struct {
	// Trigger is spec.webhook.testTrigger.
	Trigger string
}

// NewWebhookTest returns the event of a test. Its id is derived from the merchant and the trigger.
func NewWebhookTest(merchantID, merchantName, trigger string, occurredAt time.Time) Event {
	return Event{
		ID:         testEventID(merchantID, trigger),
		Kind:       v1alpha1.EventWebhookTest,
		MerchantID: merchantID, MerchantName: merchantName,
		OccurredAt: occurredAt,
		Test:       &WebhookTest{Trigger: trigger},
	}
}

// NewKeyRotated returns the event of a rotation that issued a key at occurredAt. Its id is derived from the key id, the generation and that
// time: a generation may repeat after the record of a key was lost.
func NewKeyRotated(merchantID, merchantName string, rotation KeyRotation, occurredAt time.Time) Event {
	return Event{
		ID:         keyEventID(&rotation, occurredAt),
		Kind:       v1alpha1.EventKeyRotated,
		MerchantID: merchantID, MerchantName: merchantName,
		OccurredAt: occurredAt,
		Key:        &rotation,
	}
}

func testEventID(merchantID, trigger string) string {
	return "evt_test_" + merchantID + "_" + digest(trigger)
}

func keyEventID(rotation *KeyRotation, occurredAt time.Time) string {
	return fmt.Sprintf("evt_key_%s_%d_%d", rotation.KeyID, rotation.Generation, occurredAt.UnixMilli())
}

// Mark is the end of a session event's id. It names the change within its session, so that the same change
// has the same id on every replica. Ids hold letters, digits and underscores only.
type Mark string

const (
	// MarkCreated is that of session.created.
	MarkCreated Mark = "created"
	// MarkEnded is that of the event of every final status: there is only one end.
	MarkEnded Mark = "ended"
)

// MarkLate is that of session.late_payment for a payment of the rail.
func MarkLate(rail session.Rail, paymentRef string) Mark {
	return Mark("late_" + digest(rail.Scope(paymentRef)))
}

// MarkMismatch is that of session.payment_mismatch for a payment of the rail.
func MarkMismatch(rail session.Rail, paymentRef string) Mark {
	return Mark("mismatch_" + digest(rail.Scope(paymentRef)))
}

// MarkRefundRequested is the mark of session.refund_requested for a request of the session.
func MarkRefundRequested(refundID string) Mark { return Mark("asked_" + digest(refundID)) }

// MarkRefundRejected is the mark of session.refund_rejected for a request of the session.
func MarkRefundRejected(refundID string) Mark { return Mark("rejected_" + digest(refundID)) }

// MarkRefund is that of session.payment_refunded for a refund of the rail.
func MarkRefund(rail session.Rail, refundRef string) Mark {
	return Mark("refund_" + digest(rail.Scope(refundRef)))
}

// SessionEventID is the id of an event of the session.
func SessionEventID(id session.ID, mark Mark) string { return ListedEventID(id.String(), mark) }

// ListedEventID is SessionEventID of a listed text that should be a session id.
func ListedEventID(sessionID string, mark Mark) string {
	return "evt_" + strings.TrimPrefix(sessionID, "ps_") + "_" + string(mark)
}

// HashID names an event where others than its merchant read: in logs and in Events of Kubernetes. Its id has the id of its session, which is all
// that a payer needs to see the session.
func HashID(eventID string) string { return digest(eventID) }

// digest returns 16 hex digits of the text's SHA-256: others choose payment references and triggers, ids are ours.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// Subject is what events of a kind are about: it decides which fields they have, in Redis and in their body.
type Subject int

// Subjects of events; 0 is that of an unknown kind.
const (
	// AboutSession: Event.Session is set.
	AboutSession Subject = iota + 1
	// AboutPayment: Event.Session and its Payment are set.
	AboutPayment
	// AboutRefund: Event.Session and its Refund are set.
	AboutRefund
	// AboutKey: Event.Key is set.
	AboutKey
	// AboutTest: Event.Test is set.
	AboutTest
)

// subjects are those of all kinds. A new kind is a line here, the change that records it, its name in api/v1alpha1 and its
// row in docs/webhooks.md.
var subjects = map[v1alpha1.WebhookEvent]Subject{
	v1alpha1.EventSessionCreated:   AboutSession,
	v1alpha1.EventSessionCompleted: AboutSession,
	v1alpha1.EventSessionFailed:    AboutSession,
	v1alpha1.EventSessionExpired:   AboutSession,
	v1alpha1.EventSessionCancelled: AboutSession,
	v1alpha1.EventLatePayment:      AboutPayment,
	v1alpha1.EventPaymentMismatch:  AboutPayment,
	v1alpha1.EventPaymentRefunded:  AboutRefund,
	v1alpha1.EventRefundRequested:  AboutRefund,
	v1alpha1.EventRefundRejected:   AboutRefund,
	v1alpha1.EventKeyRotated:       AboutKey,
	v1alpha1.EventWebhookTest:      AboutTest,
}

// Kinds returns all kinds of events, sorted.
func Kinds() []v1alpha1.WebhookEvent { return slices.Sorted(maps.Keys(subjects)) }

// Subject returns what the event must be about, by its kind.
func (e Event) Subject() Subject { return subjects[e.Kind] }
