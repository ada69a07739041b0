package feed_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
)

// The golden files are what receivers have been sent and may be sent again, by a newer release too.
func TestEncode_Golden(t *testing.T) {
	for name, event := range golden(t) {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, text); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), string(encode(t, event))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncode_GoldenFileOfEachKind(t *testing.T) {
	seen := map[v1alpha1.WebhookEvent]bool{}
	for _, event := range golden(t) {
		seen[event.Kind] = true
	}
	for _, kind := range feed.Kinds() {
		if !seen[kind] {
			t.Errorf("no golden file for %s", kind)
		}
	}
}

// What receivers get is what the API description says of the type, and has nothing besides.
func TestEncode_Documented(t *testing.T) {
	document, err := openapitest.Closed(openapitest.Public)
	if err != nil {
		t.Fatal(err)
	}
	schema := document.Components.Schemas["Event"].Value
	for name, event := range golden(t) {
		var value any
		if err := json.Unmarshal(encode(t, event), &value); err != nil {
			t.Fatal(err)
		}
		if err := schema.VisitJSON(value, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var documented []v1alpha1.WebhookEvent
	for kind := range schema.Discriminator.Mapping {
		documented = append(documented, v1alpha1.WebhookEvent(kind))
	}
	slices.Sort(documented)
	if diff := cmp.Diff(feed.Kinds(), documented); diff != "" {
		t.Errorf("types of Event (-want +documented):\n%s", diff)
	}
}

// The zone of the process that encodes is not part of the event.
func TestEncode_TimeZone(t *testing.T) {
	there := time.FixedZone("elsewhere", 5*3600+1800)
	for name, event := range golden(t) {
		want := encode(t, event)
		event.OccurredAt = event.OccurredAt.In(there)
		if change := event.Session; change != nil {
			change.CreatedAt = change.CreatedAt.In(there)
			if !change.EndedAt.IsZero() {
				change.EndedAt = change.EndedAt.In(there)
			}
		}
		if got := encode(t, event); !bytes.Equal(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestEncode_NoCustomerEmail(t *testing.T) {
	for name, event := range golden(t) {
		if body := string(encode(t, event)); strings.Contains(body, "@") {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestEncode_IncompleteEvent(t *testing.T) {
	ofSession := event(t, v1alpha1.EventSessionCompleted, session.Completed)
	refused := refusing(event(t, v1alpha1.EventSessionExpired, session.Expired), session.Payment{Ref: "r"}, ended)
	for name, event := range map[string]feed.Event{
		"nothing":                      {},
		"a kind alone":                 {Kind: v1alpha1.EventSessionExpired},
		"a rotation alone":             {Kind: v1alpha1.EventKeyRotated},
		"a test alone":                 {Kind: v1alpha1.EventWebhookTest},
		"a rotation with a session":    {Kind: v1alpha1.EventKeyRotated, Session: ofSession.Session},
		"a late payment without one":   {Kind: v1alpha1.EventLatePayment, Session: ofSession.Session},
		"a mismatch without a payment": {Kind: v1alpha1.EventPaymentMismatch, Session: ofSession.Session},
		"a refund without one":         {Kind: v1alpha1.EventPaymentRefunded, Session: ofSession.Session},
		"an end with a refund": {
			Kind:    v1alpha1.EventSessionCompleted,
			Session: refunding(event(t, v1alpha1.EventSessionCompleted, session.Completed), feed.Refund{Refund: session.Refund{Ref: "r"}}).Session,
		},
		"an end with a refused payment": {
			Kind: v1alpha1.EventSessionExpired, Session: refused.Session,
		},
		"a kind of a newer release": {Kind: "session.refunded", Session: ofSession.Session},
	} {
		if body, err := feed.Encode(event); !errors.Is(err, feed.ErrIncomplete) || body != nil {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
}

// FuzzEncode holds that whatever text a merchant or a rail puts in arrives as it was.
func FuzzEncode(f *testing.F) {
	for _, text := range []string{"", "1001", `"\`, "</script>&", "crème 🥐", "\u2028", "\x00\x1f", "\xff"} {
		f.Add(text, int64(1250))
	}
	f.Fuzz(func(t *testing.T, text string, cents int64) {
		event := settled(event(t, v1alpha1.EventSessionFailed, session.Failed), "ref", text)
		event.MerchantName, event.Session.Charge.AmountCents, event.Session.Charge.OrderRef = text, cents, text
		first := encode(t, event)
		if again := encode(t, event); !bytes.Equal(first, again) {
			t.Fatalf("%s, and then %s", first, again)
		}
		var read struct {
			Data struct {
				OrderRef    string `json:"orderRef"`
				Reason      string `json:"reason"`
				AmountCents int64  `json:"amountCents"`
				Merchant    struct {
					Name string `json:"name"`
				} `json:"merchant"`
			} `json:"data"`
		}
		if err := json.Unmarshal(first, &read); err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		text = strings.ToValidUTF8(text, "\ufffd")
		got := read.Data
		if strings.Contains(text, "\ufffd") {
			return // which of several bad bytes become one mark is not ours to say
		}
		if got.OrderRef != text || got.Reason != text || got.Merchant.Name != text || got.AmountCents != cents {
			t.Fatalf("%q and %d became %+v", text, cents, got)
		}
	})
}

func encode(t testing.TB, event feed.Event) []byte {
	t.Helper()
	body, err := feed.Encode(event)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

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
		Description:   "2 flat whites & 1 croissant",
		ReturnURL:     "https://shop.example/orders/1001",
		TaxCents:      new(int64(110)),
		TipCents:      new(int64(0)),
		CustomerEmail: "ada@example.com",
	}
}

// event is of a session of the charge that has reached the status.
func event(t testing.TB, kind v1alpha1.WebhookEvent, status session.Status) feed.Event {
	t.Helper()
	id, err := session.ParseID("ps_qrstuvwxyz23X7pL1vB8nR3tY6wZaa")
	if err != nil {
		t.Fatal(err)
	}
	change := &feed.SessionChange{Sequence: 1, Session: session.Session{
		ID: id, MerchantID: merchantID, MerchantName: "Acme Coffee", KeyID: "tillkey23456", Status: status, Currency: "EUR",
		Charge: charge(), CreatedAt: created, ExpiresAt: expires,
	}}
	out := feed.Event{
		ID: "evt_qrstuvwxyz23X7pL1vB8nR3tY6wZaa_ended", Kind: kind, MerchantID: merchantID, MerchantName: "Acme Coffee",
		OccurredAt: created, Session: change,
	}
	if status.Final() {
		change.EndedAt, out.OccurredAt, change.Sequence = ended, ended, 2
	}
	return out
}

func settled(e feed.Event, ref, reason string) feed.Event {
	e.Session.PaymentRef, e.Session.Reason = ref, reason
	return e
}

func refusing(e feed.Event, payment session.Payment, at time.Time) feed.Event {
	e.Session.Payment, e.OccurredAt = &payment, at
	e.Session.Sequence++
	return e
}

func refunding(e feed.Event, refund feed.Refund) feed.Event {
	e.Session.Refund = &refund
	return e
}

func rotated(rotation feed.KeyRotation) feed.Event {
	return feed.Event{
		ID: "evt_key_abcdefgh2345_2_1795252500000", Kind: v1alpha1.EventKeyRotated, MerchantID: merchantID, MerchantName: "Acme Coffee",
		OccurredAt: ended, Key: &rotation,
	}
}

// golden are the events whose bodies are in testdata, by the names of their files.
func golden(t testing.TB) map[string]feed.Event {
	t.Helper()
	late := session.Payment{Ref: "card-2002", AmountCents: 1250, Currency: "EUR", PaidAt: expires.Add(-time.Second)}
	bare := event(t, v1alpha1.EventSessionExpired, session.Expired)
	bare.Session.Charge = session.Charge{AmountCents: 1}
	return map[string]feed.Event{
		"session.created":   event(t, v1alpha1.EventSessionCreated, session.Pending),
		"session.completed": settled(event(t, v1alpha1.EventSessionCompleted, session.Completed), "card-1001", ""),
		"session.failed":    settled(event(t, v1alpha1.EventSessionFailed, session.Failed), "card-1001", "insufficient funds"),
		"session.expired":   bare,
		"session.cancelled": event(t, v1alpha1.EventSessionCancelled, session.Cancelled),
		"session.late_payment": refusing(
			settled(event(t, v1alpha1.EventLatePayment, session.Completed), "card-1001", ""), late, expires),
		"session.payment_mismatch": refusing(event(t, v1alpha1.EventPaymentMismatch, session.Pending),
			session.Payment{Ref: "card-2002", AmountCents: 1249, Currency: "USD"}, created),
		"session.payment_refunded": refunding(
			settled(event(t, v1alpha1.EventPaymentRefunded, session.Completed), "", ""),
			feed.Refund{session.Refund{Ref: "refund-7", PaymentRef: "card-1001", AmountCents: 500}, "EUR", 1250, 750, ""}),
		"session.refund_requested": refunding(
			settled(event(t, v1alpha1.EventRefundRequested, session.Completed), "", ""),
			feed.Refund{session.Refund{Ref: "rf_3b1f0a9c5d7e2f4a6b8c0d1e", PaymentRef: "card-1001", AmountCents: 500}, "EUR", 1250, 0, "one cup was cold"}),
		"session.refund_rejected": refunding(
			settled(event(t, v1alpha1.EventRefundRejected, session.Completed), "", ""),
			feed.Refund{session.Refund{Ref: "rf_3b1f0a9c5d7e2f4a6b8c0d1e", PaymentRef: "card-1001", AmountCents: 500}, "EUR", 1250, 0, "account closed"}),
		"key.rotated": rotated(feed.KeyRotation{
			KeyID: "abcdefgh2345", Prefix: "mk_live_abcdefgh2345_4fK9", Generation: 2, Cause: v1alpha1.RotationAPI,
		}),
		"webhook.test": {
			ID: "evt_test_acmecoffee23_0123456789abcdef", Kind: v1alpha1.EventWebhookTest, MerchantID: merchantID, MerchantName: "Acme Coffee",
			OccurredAt: ended, Test: &feed.WebhookTest{Trigger: "2026-11-21"},
		},
		"key.rotated.own": rotated(feed.KeyRotation{
			KeyID: "abcdefgh2345", Generation: 3, Cause: v1alpha1.RotationTrigger,
		}),
	}
}

func guide(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Receivers are written by what the guide shows.
func TestGuide_Body(t *testing.T) {
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(guide(t))
	if block == nil {
		t.Fatal("the guide shows no body")
	}
	var example bytes.Buffer
	if err := json.Compact(&example, []byte(block[1])); err != nil {
		t.Fatal(err)
	}
	late := refusing(event(t, v1alpha1.EventLatePayment, session.Expired), session.Payment{
		Ref: "card-2002", AmountCents: 1250, Currency: "EUR", PaidAt: expires.Add(-time.Second),
	}, expires)
	change := late.Session
	change.Charge = session.Charge{AmountCents: 1250, OrderRef: "1001"}
	change.CreatedAt = time.UnixMilli(1795252500000)
	change.ExpiresAt = change.CreatedAt.Add(15 * time.Minute)
	change.EndedAt, change.Sequence, late.MerchantID = change.ExpiresAt, 2, "qrstuvwxyz23"
	if diff := cmp.Diff(string(encode(t, late)), example.String()); diff != "" {
		t.Errorf("(-sent +guide):\n%s", diff)
	}
}

func TestGuide_FieldsAndKinds(t *testing.T) {
	text := guide(t)
	var names []string
	for _, event := range golden(t) {
		var body struct {
			Type string         `json:"type"`
			Data map[string]any `json:"data"`
		}
		if err := json.Unmarshal(encode(t, event), &body); err != nil {
			t.Fatal(err)
		}
		names = append(names, body.Type)
		for field := range body.Data {
			names = append(names, field)
		}
	}
	for _, name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/webhooks.md does not name %s", name)
		}
	}
}
