package delivery_test

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

const merchantID = "acmecoffee23"

// The instants of a session, each with milliseconds that an encoding could lose.
var (
	created = time.Date(2026, 11, 21, 9, 30, 0, 5e6, time.UTC)
	ended   = created.Add(95*time.Second + 995*time.Millisecond) // on a full second
	expires = created.Add(15 * time.Minute)
)

// charge has all its parts, and an order that HTML would escape.
func charge() session.Charge {
	return session.Charge{
		AmountCents:   1250,
		OrderRef:      `table 7 <b>&"crème"</b>`,
		TaxCents:      new(int64(110)),
		TipCents:      new(int64(0)),
		CustomerEmail: "ada@example.com",
	}
}

// event tells that a session of the charge has come to the status.
func event(t testing.TB, kind v1alpha1.WebhookEvent, status session.Status) outbox.Event {
	t.Helper()
	id, err := session.ParseID("ps_0a4fK9sQ2mX7pL1vB8nR3tY6wZ")
	if err != nil {
		t.Fatal(err)
	}
	news := &outbox.SessionNews{Sequence: 1, Session: session.Session{
		ID: id, MerchantID: merchantID, MerchantName: "Acme Coffee", Status: status,
		Charge: charge(), CreatedAt: created, ExpiresAt: expires,
	}}
	out := outbox.Event{
		ID: "evt_0a4fK9sQ2mX7pL1vB8nR3tY6wZ_ended", Kind: kind, MerchantID: merchantID, MerchantName: "Acme Coffee",
		OccurredAt: created, Session: news,
	}
	if status.Final() {
		news.EndedAt, out.OccurredAt, news.Sequence = ended, ended, 2
	}
	return out
}

func settled(e outbox.Event, ref, reason string) outbox.Event {
	e.Session.PaymentRef, e.Session.Reason = ref, reason
	return e
}

func refusing(e outbox.Event, payment outbox.RefusedPayment, at time.Time) outbox.Event {
	e.Session.Payment, e.OccurredAt = &payment, at
	e.Session.Sequence++
	return e
}

func rotated(news outbox.KeyNews) outbox.Event {
	return outbox.Event{
		ID: "evt_key_abcdefgh2345_2", Kind: v1alpha1.EventKeyRotated, MerchantID: merchantID, MerchantName: "Acme Coffee",
		OccurredAt: ended, Key: &news,
	}
}

// golden are the events whose bodies are in testdata, by the names of their files.
func golden(t testing.TB) map[string]outbox.Event {
	t.Helper()
	late := outbox.RefusedPayment{Ref: "card-2002", AmountCents: 1250, PaidAt: expires.Add(-time.Second)}
	bare := event(t, v1alpha1.EventSessionExpired, session.Expired)
	bare.Session.Charge = session.Charge{AmountCents: 1}
	return map[string]outbox.Event{
		"session.created":   event(t, v1alpha1.EventSessionCreated, session.Pending),
		"session.completed": settled(event(t, v1alpha1.EventSessionCompleted, session.Completed), "card-1001", ""),
		"session.failed":    settled(event(t, v1alpha1.EventSessionFailed, session.Failed), "card-1001", "insufficient funds"),
		"session.expired":   bare,
		"session.cancelled": event(t, v1alpha1.EventSessionCancelled, session.Cancelled),
		"session.late_payment": refusing(
			settled(event(t, v1alpha1.EventLatePayment, session.Completed), "card-1001", ""), late, expires),
		"session.payment_mismatch": refusing(event(t, v1alpha1.EventPaymentMismatch, session.Pending),
			outbox.RefusedPayment{Ref: "card-2002", AmountCents: 1249}, created),
		"key.rotated": rotated(outbox.KeyNews{
			KeyID: "abcdefgh2345", Prefix: "mk_live_abcdefgh2345_4fK9", Generation: 2, Cause: v1alpha1.RotationAPI,
		}),
		"key.rotated.own": rotated(outbox.KeyNews{
			KeyID: "abcdefgh2345", Generation: 3, Cause: v1alpha1.RotationTrigger,
		}),
	}
}
