package outbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Mark is the end of a session event's id. It names the change within its session, so that the same change
// has the same id whoever made it. Ids hold letters, digits and underscores only.
type Mark string

const (
	// MarkCreated is that of session.created.
	MarkCreated Mark = "created"
	// MarkEnded is that of the event of every final status: there is only one end.
	MarkEnded Mark = "ended"
)

// MarkLate is that of session.late_payment for the payment reference.
func MarkLate(paymentRef string) Mark { return Mark("late_" + digest(paymentRef)) }

// MarkMismatch is that of session.payment_mismatch for the payment reference.
func MarkMismatch(paymentRef string) Mark { return Mark("mismatch_" + digest(paymentRef)) }

// SessionEventID is the id of an event of the session.
func SessionEventID(id session.ID, mark Mark) string { return EventIDOf(id.String(), mark) }

// EventIDOf is SessionEventID of what should be the text of a session id.
func EventIDOf(sessionID string, mark Mark) string {
	return "evt_" + strings.TrimPrefix(sessionID, "ps_") + "_" + string(mark)
}

// KeyRotated is the event of a rotation. Its id is derived from the key id and the generation.
func KeyRotated(merchantID, merchantName string, news KeyNews, occurredAt time.Time) Event {
	return Event{
		ID:         fmt.Sprintf("evt_key_%s_%d", news.KeyID, news.Generation),
		Kind:       v1alpha1.EventKeyRotated,
		MerchantID: merchantID, MerchantName: merchantName,
		OccurredAt: occurredAt,
		Key:        &news,
	}
}

// digest returns 16 hex digits of the reference's SHA-256: rails choose references, ids are ours.
func digest(paymentRef string) string {
	sum := sha256.Sum256([]byte(paymentRef))
	return hex.EncodeToString(sum[:8])
}
