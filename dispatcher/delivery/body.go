package delivery

import (
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// body is an event as receivers see it. The order of the fields is part of the bytes.
type body struct {
	Type      v1alpha1.WebhookEvent `json:"type"`
	Timestamp string                `json:"timestamp"`
	Data      any                   `json:"data"`
}

// sessionData is a session right after the change. It never has the payer's e-mail address.
type sessionData struct {
	SessionID   string         `json:"sessionId"`
	OrderRef    string         `json:"orderRef,omitempty"`
	Status      session.Status `json:"status"`
	AmountCents int64          `json:"amountCents"`
	TaxCents    *int64         `json:"taxCents,omitempty"`
	TipCents    *int64         `json:"tipCents,omitempty"`
	CreatedAt   int64          `json:"createdAt"`
	ExpiresAt   int64          `json:"expiresAt"`
	EndedAt     int64          `json:"endedAt,omitempty"`
	PaymentRef  string         `json:"paymentRef,omitempty"`
	Reason      string         `json:"reason,omitempty"`
	Payment     *paymentData   `json:"payment,omitempty"`
	Sequence    int64          `json:"sequence"`
	Merchant    merchantData   `json:"merchant"`
}

// paymentData is money that is to be refunded.
type paymentData struct {
	AmountCents int64 `json:"amountCents"`
	PaidAt      int64 `json:"paidAt,omitempty"`
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

type merchantData struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func sessionDataOf(event outbox.Event) sessionData {
	news := event.Session
	data := sessionData{
		SessionID:   news.ID.String(),
		OrderRef:    news.Charge.OrderRef,
		Status:      news.Status,
		AmountCents: news.Charge.AmountCents,
		TaxCents:    news.Charge.TaxCents,
		TipCents:    news.Charge.TipCents,
		CreatedAt:   milliseconds(news.CreatedAt),
		ExpiresAt:   milliseconds(news.ExpiresAt),
		EndedAt:     milliseconds(news.EndedAt),
		PaymentRef:  news.PaymentRef,
		Reason:      news.Reason,
		Sequence:    news.Sequence,
		Merchant:    merchantOf(event),
	}
	if refused := news.Payment; refused != nil {
		data.PaymentRef = refused.Ref // the one to be refunded, whatever settled the session
		data.Payment = &paymentData{AmountCents: refused.AmountCents, PaidAt: milliseconds(refused.PaidAt)}
	}
	return data
}

func keyDataOf(event outbox.Event) keyData {
	return keyData{
		KeyID:      event.Key.KeyID,
		Prefix:     event.Key.Prefix,
		Generation: event.Key.Generation,
		Cause:      event.Key.Cause,
		RotatedAt:  milliseconds(event.OccurredAt),
		Merchant:   merchantOf(event),
	}
}

func merchantOf(event outbox.Event) merchantData {
	return merchantData{ID: published.PublicMerchantID(event.MerchantID), Name: event.MerchantName}
}
