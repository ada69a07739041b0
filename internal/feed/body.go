package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// ErrIncomplete says that an event lacks data that its kind requires, or has an unknown kind.
var ErrIncomplete = errors.New("the event is incomplete")

// Encode returns the body of an event, always the same bytes for the same event. The error is ErrIncomplete.
//
// Attempts for one event are days apart, and a newer release may make the later ones: a change here changes bodies that
// receivers have seen already.
func Encode(event Event) ([]byte, error) {
	var data any
	switch subject := event.Subject(); {
	case subject == AboutKey && event.Key != nil:
		data = newKeyData(event)
	case subject == AboutTest && event.Test != nil:
		data = testData{Trigger: event.Test.Trigger, Merchant: newMerchantData(event)}
	case subject == AboutSession && event.Session != nil && event.Session.Payment == nil && event.Session.Refund == nil,
		subject == AboutPayment && event.Session != nil && event.Session.Payment != nil,
		subject == AboutRefund && event.Session != nil && event.Session.Refund != nil:
		data = newSessionData(event)
	default:
		return nil, fmt.Errorf("%w: %s", ErrIncomplete, event.Kind)
	}
	return marshal(body{
		Type:      event.Kind,
		Livemode:  !event.TestMode,
		Timestamp: event.OccurredAt.UTC().Format(timestampLayout),
		Data:      data,
	})
}

// body is an event as receivers see it. The order of the fields is part of the bytes.
type body struct {
	Type      v1alpha1.WebhookEvent `json:"type"`
	Livemode  bool                  `json:"livemode"` // early, so that it is seen
	Timestamp string                `json:"timestamp"`
	Data      any                   `json:"data"`
}

// timestampLayout is RFC 3339 to the millisecond; time.Time's own encoding drops zeros.
const timestampLayout = "2006-01-02T15:04:05.000Z07:00"

// sessionData is a session right after the change. It never has the payer's e-mail address.
type sessionData struct {
	SessionID   string         `json:"sessionId"`
	OrderRef    string         `json:"orderRef,omitempty"`
	Description string         `json:"description,omitempty"`
	Status      session.Status `json:"status"`
	AmountCents int64          `json:"amountCents"`
	Currency    string         `json:"currency"`
	TaxCents    *int64         `json:"taxCents,omitempty"`
	TipCents    *int64         `json:"tipCents,omitempty"`
	CreatedAt   int64          `json:"createdAt"`
	ExpiresAt   int64          `json:"expiresAt"`
	EndedAt     int64          `json:"endedAt,omitempty"`
	PaymentRef  string         `json:"paymentRef,omitempty"`
	Reason      string         `json:"reason,omitempty"`
	Payment     *paymentData   `json:"payment,omitempty"`
	Refund      *refundData    `json:"refund,omitempty"`
	KeyID       string         `json:"keyId"` // of the API key that created it
	Sequence    int64          `json:"sequence"`
	Merchant    merchantData   `json:"merchant"`
}

// paymentData is a payment that is to be refunded.
type paymentData struct {
	AmountCents int64  `json:"amountCents"`
	Currency    string `json:"currency"` // may be another one than the session's
	PaidAt      int64  `json:"paidAt,omitempty"`
}

// refundData is a refund of the payment in paymentRef.
type refundData struct {
	RefundRef     string `json:"refundRef"`
	AmountCents   int64  `json:"amountCents"`
	Currency      string `json:"currency"`
	PaymentCents  int64  `json:"paymentCents"`
	RefundedCents int64  `json:"refundedCents"` // of the payment, so far
	Reason        string `json:"reason,omitempty"`
}

func newSessionData(event Event) sessionData {
	change := event.Session
	data := sessionData{
		SessionID:   change.ID.String(),
		OrderRef:    change.Charge.OrderRef,
		Description: change.Charge.Description,
		Status:      change.Status,
		AmountCents: change.Charge.AmountCents,
		Currency:    change.Currency,
		TaxCents:    change.Charge.TaxCents,
		TipCents:    change.Charge.TipCents,
		CreatedAt:   milliseconds(change.CreatedAt),
		ExpiresAt:   milliseconds(change.ExpiresAt),
		EndedAt:     milliseconds(change.EndedAt),
		PaymentRef:  change.PaymentRef,
		Reason:      change.Reason,
		KeyID:       change.KeyID,
		Sequence:    change.Sequence,
		Merchant:    newMerchantData(event),
	}
	if refused := change.Payment; refused != nil {
		data.PaymentRef = refused.Ref // the one to be refunded, whatever settled the session
		data.Payment = &paymentData{AmountCents: refused.AmountCents, Currency: refused.Currency, PaidAt: milliseconds(refused.PaidAt)}
	}
	if refund := change.Refund; refund != nil {
		data.PaymentRef = refund.PaymentRef
		data.Refund = &refundData{
			RefundRef: refund.Ref, AmountCents: refund.AmountCents, Currency: refund.Currency, PaymentCents: refund.PaymentCents, RefundedCents: refund.RefundedCents,
			Reason: refund.Reason,
		}
	}
	return data
}

// keyData is the API key in force after a rotation.
type keyData struct {
	KeyID      string                 `json:"keyId"`
	Prefix     string                 `json:"prefix,omitempty"`
	Generation int64                  `json:"generation"`
	Cause      v1alpha1.RotationCause `json:"cause"`
	RotatedAt  int64                  `json:"rotatedAt"`
	Merchant   merchantData           `json:"merchant"`
}

func newKeyData(event Event) keyData {
	return keyData{
		KeyID:      event.Key.KeyID,
		Prefix:     event.Key.Prefix,
		Generation: event.Key.Generation,
		Cause:      event.Key.Cause,
		RotatedAt:  milliseconds(event.OccurredAt),
		Merchant:   newMerchantData(event),
	}
}

// testData is a test of the endpoint.
type testData struct {
	Trigger  string       `json:"trigger"`
	Merchant merchantData `json:"merchant"`
}

type merchantData struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func newMerchantData(event Event) merchantData {
	return merchantData{ID: published.PublicMerchantID(event.MerchantID), Name: event.MerchantName}
}

// marshal writes no newline, and & < > as they are: the body is not part of an HTML page.
func marshal(body body) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return nil, fmt.Errorf("encode a %s event: %w", body.Type, err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// milliseconds is how times within data are written, as everywhere in the HTTP API; 0: there is none.
func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
