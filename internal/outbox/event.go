package outbox

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Event is one thing a merchant is told. What it says never changes once it is recorded, so that every
// attempt to deliver it sends the same bytes.
type Event struct {
	// ID is the webhook-id: derived from what happened, so that one change cannot become two events.
	ID   string
	Kind v1alpha1.WebhookEvent
	// MerchantID is the bare id, without the "mer_" people see; MerchantName is the name payers see.
	MerchantID, MerchantName string
	OccurredAt               time.Time
	// Session is what a session.* event tells of, else nil.
	Session *SessionNews
	// Key is what key.rotated tells of, else nil.
	Key *KeyNews
}

// Bucket is where the event is kept: with everything else of its merchant.
func (e Event) Bucket() session.Bucket { return session.BucketOf(e.MerchantID) }

// SessionNews is a session as it was right after the change.
type SessionNews struct {
	session.Session
	// Sequence numbers the events of one session from 1, in the order of its changes.
	Sequence int64
	// Payment is what session.late_payment and session.payment_mismatch tell of, else nil. It did
	// not settle the session.
	Payment *RefusedPayment
}

// RefusedPayment is money that arrived and is to be refunded.
type RefusedPayment struct {
	Ref         string
	AmountCents int64
	// PaidAt is as the rail says; zero: it did not say.
	PaidAt time.Time
}

// KeyNews is the API key in force after a rotation, without anything secret.
type KeyNews struct {
	KeyID string
	// Prefix is the beginning of the new key; empty for a key made elsewhere.
	Prefix     string
	Generation int64
	Cause      v1alpha1.RotationCause
}
