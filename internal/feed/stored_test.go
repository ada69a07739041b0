package feed_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// owner is the account of the session in these tests.
const owner = "qrstuvwxyz23"

// addedToRecord is what a record has behind the fields that every release has written.
const addedToRecord = "\t2 flat whites & 1 croissant\thttps://shop.example/orders/1001"

// stored writes the event of a session as lib/sessions.lua does.
func stored(fields string) string {
	return strings.ReplaceAll(fields, "|", "\t") + "\n" + strings.ReplaceAll(
		owner+"|1250|900000|tillkey23456|EUR|110|0|table 7 <b>&\"crème\"</b>|Acme Coffee", "|", "\t") + addedToRecord
}

var sameEvent = cmpopts.EquateComparable(session.ID{})

func TestParse_Sessions(t *testing.T) {
	const at, end, expiry = "1795253400005", "1795253496000", "1795254300005"
	completed := settled(event(t, v1alpha1.EventSessionCompleted, session.Completed), "1001", "")
	completed.Session.PaymentRail = "card"
	completed.Session.PaidAt = created.Add(time.Second)
	late := refusing(settled(event(t, v1alpha1.EventLatePayment, session.Failed), "", "no funds"),
		session.Payment{Rail: "card", Ref: "2", Outcome: session.Completed, AmountCents: 1249, Currency: "EUR"}, expires)
	mismatch := refusing(event(t, v1alpha1.EventPaymentMismatch, session.Pending), session.Payment{Rail: "card", Ref: "2", Outcome: session.Completed, AmountCents: 9, Currency: "USD", PaidAt: created}, created)
	refund := refunding(settled(event(t, v1alpha1.EventPaymentRefunded, session.Completed), "", ""),
		feed.Refund{session.Refund{Rail: "card", Ref: "refund-7", PaymentRef: "1001", AmountCents: 500, At: ended}, "EUR", 1250, 750, ""})
	asked := session.Refund{Rail: "card", Ref: "rf_7", PaymentRef: "1001", AmountCents: 500}
	requested := refunding(settled(event(t, v1alpha1.EventRefundRequested, session.Completed), "", ""), feed.Refund{asked, "EUR", 1250, 0, "100% cold"})
	rejected := refunding(settled(event(t, v1alpha1.EventRefundRejected, session.Completed), "", ""), feed.Refund{asked, "EUR", 1250, 750, ""})
	for name, row := range map[string]struct {
		text string
		want feed.Event
	}{
		"requested": {"1|session.refund_requested|" + end + "|X7pL1vB8nR3tY6wZaa|2|COMPLETED|" + expiry + "|" + end + "|card 1001|1250 0 rf_7 100%25 cold|500||", requested},
		"rejected":  {"1|session.refund_rejected|" + end + "|X7pL1vB8nR3tY6wZaa|2|COMPLETED|" + expiry + "|" + end + "|card 1001|1250 750 rf_7 |500||", rejected},
		"refund":    {"1|session.payment_refunded|" + end + "|X7pL1vB8nR3tY6wZaa|2|COMPLETED|" + expiry + "|" + end + "|card 1001|1250 750 refund-7|500||", refund},
		"created":   {"1|session.created|" + at + "|X7pL1vB8nR3tY6wZaa|1||" + expiry + "||||||", event(t, v1alpha1.EventSessionCreated, session.Pending)},
		"completed": {"1|session.completed|" + end + "|X7pL1vB8nR3tY6wZaa|2|COMPLETED|" + expiry + "||card 1001|||1795253401005|", completed},
		"late":      {"1|session.late_payment|" + expiry + "|X7pL1vB8nR3tY6wZaa|3|FAILED|" + expiry + "|" + end + "|card 2|no funds|1249||", late},
		"mismatch":  {"1|session.payment_mismatch|" + at + "|X7pL1vB8nR3tY6wZaa|2||" + expiry + "||card 2||9 USD|" + at + "|", mismatch},
	} {
		t.Run(name, func(t *testing.T) {
			id := row.want.Session.ID
			switch row.want.Kind {
			case v1alpha1.EventSessionCreated:
				row.want.ID = feed.SessionEventID(id, feed.MarkCreated)
			case v1alpha1.EventLatePayment:
				row.want.ID = feed.SessionEventID(id, feed.MarkLate("card", "2"))
			case v1alpha1.EventPaymentMismatch:
				row.want.ID = feed.SessionEventID(id, feed.MarkMismatch("card", "2"))
			case v1alpha1.EventPaymentRefunded:
				row.want.ID = feed.SessionEventID(id, feed.MarkRefund("card", "refund-7"))
			case v1alpha1.EventRefundRequested:
				row.want.ID = feed.SessionEventID(id, feed.MarkRefundRequested("rf_7"))
			case v1alpha1.EventRefundRejected:
				row.want.ID = feed.SessionEventID(id, feed.MarkRefundRejected("rf_7"))
			default:
			}
			row.want.MerchantID, row.want.Session.MerchantID = id.MerchantID(), id.MerchantID()
			row.want.Session.Charge.CustomerEmail = ""
			got, err := feed.Parse(id.Account(), stored(strings.TrimSuffix(row.text, "|")))
			if diff := cmp.Diff(row.want, got, sameEvent); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestParse_KeysAndTests(t *testing.T) {
	odd := feed.NewWebhookTest(merchantID, "Acme\tCoffee", "100 %\t%09", created)
	testKey := golden(t)["key.rotated"]
	testKey.TestMode = true
	for name, want := range map[string]feed.Event{
		"rotated": golden(t)["key.rotated"], "own": golden(t)["key.rotated.own"], "test mode": testKey, "tabs": odd,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := feed.Parse(want.Account(), string(want.Append(nil)))
			want.ID = got.ID
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestParse_NewerVersions(t *testing.T) {
	for name, text := range map[string]string{
		"a format": "2\tsession.completed\t1795253496000\tand what not",
		"a kind":   "1\tsession.refunded\t1795253496000\tand what not",
	} {
		got, err := feed.Parse(account, text)
		if !errors.Is(err, feed.ErrUnsupported) || got.Kind == "" || !got.OccurredAt.Equal(ended) || got.Account() != account {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A later release appends texts, which this one ignores. No release stores fewer texts than the first one did.
func TestParse_GrownAndCut(t *testing.T) {
	session := stored("1|session.completed|1795253496000|X7pL1vB8nR3tY6wZaa|2|COMPLETED|1795254300005||card 1001|||9")
	key := golden(t)["key.rotated"]
	rows := map[string]struct{ account, text string }{
		"session": {owner, session}, "key": {key.Account(), string(key.Append(nil))},
		"test": {merchantID, string(feed.NewWebhookTest(merchantID, "Acme", "monday", created).Append(nil))},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			want, err := feed.Parse(row.account, row.text)
			if err != nil {
				t.Fatal(err)
			}
			for _, grown := range []string{row.text + "\tlater\t", strings.Replace(row.text, "\n", "\tlater\n", 1)} {
				got, err := feed.Parse(row.account, grown)
				if diff := cmp.Diff(want, got, sameEvent); diff != "" || err != nil {
					t.Errorf("%q: %v (-want +got):\n%s", grown, err, diff)
				}
			}
			first := strings.TrimSuffix(row.text, addedToRecord)
			if _, err := feed.Parse(row.account, first); err != nil {
				t.Errorf("of the first release: %q: %v", first, err)
			}
			for cut := strings.LastIndexAny(first, "\t\n"); cut > 0; cut = strings.LastIndexAny(first[:cut], "\t\n") {
				if got, err := feed.Parse(row.account, first[:cut]); !errors.Is(err, feed.ErrMalformed) {
					t.Errorf("%q: %+v, %v", first[:cut], got, err)
				}
			}
		})
	}
}

// A refund says how much of which payment went back.
func TestParse_MalformedRefunds(t *testing.T) {
	refund := func(fields string) string {
		return stored("1|session.payment_refunded|1795253496000|X7pL1vB8nR3tY6wZaa|2|COMPLETED|1795254300005|1795253496000|" + fields)
	}
	if _, err := feed.Parse(owner, refund("card 1001|1250 750 refund-7|500|")); err != nil {
		t.Fatal(err)
	}
	for name, fields := range map[string]string{
		"no payment":            "|1250 750 refund-7|500|",
		"no refund":             "card 1001|1250 750 |500|",
		"no sum":                "card 1001|1250|500|",
		"nothing":               "card 1001||500|",
		"no amount":             "card 1001|1250 750 refund-7||",
		"zero":                  "card 1001|1250 750 refund-7|0|",
		"more than the sum":     "card 1001|1250 750 refund-7|751|",
		"more than the payment": "card 1001|1250 1251 refund-7|500|",
		"garbage":               "card 1001|x 750 refund-7|500|",
		"a time of payment":     "card 1001|1250 750 refund-7|500|1795253496000",
	} {
		if got, err := feed.Parse(owner, refund(fields)); !errors.Is(err, feed.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	text := strings.Replace(refund("card 1001|1250 750 refund-7|500|"), "session.payment_refunded", "session.completed", 1)
	if got, err := feed.Parse(owner, text); !errors.Is(err, feed.ErrMalformed) {
		t.Errorf("a refund as an end: %+v, %v", got, err)
	}
}

func TestParse_Malformed(t *testing.T) {
	good := stored("1|session.completed|1795253496000|X7pL1vB8nR3tY6wZaa|2|COMPLETED|1795254300005||card 1001|||9")
	if _, err := feed.Parse(owner, good); err != nil {
		t.Fatal(err)
	}
	const optional, free, record = 7, 8, 12
	texts := strings.Split(strings.Replace(good, "\n", "\t", 1), "\t")
	join := func(texts []string) string {
		return strings.Join(texts[:record], "\t") + "\n" + strings.Join(texts[record:], "\t")
	}
	if join(texts) != good {
		t.Fatal(join(texts))
	}
	for i := range texts[:record+3] {
		if i == free || i == free+1 {
			continue
		}
		for _, garbage := range []string{"garbage %", "-1", ""} {
			if garbage == "" && (i == optional || i == 10 || i == 11) {
				continue
			}
			damaged := append([]string(nil), texts...)
			damaged[i] = garbage
			if got, err := feed.Parse(owner, join(damaged)); err == nil {
				t.Errorf("text %d is %q: %+v", i, garbage, got)
			}
		}
	}
	for _, other := range []string{"", "abcdefgh2345", account} {
		if got, err := feed.Parse(other, good); err == nil {
			t.Errorf("account %q: %+v", other, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(stored("1|session.completed|1795253496000|X7pL1vB8nR3tY6wZaa|2|COMPLETED|1795254300005||card 1001|||9"))
	f.Add("1\tkey.rotated\t1795253496000\tabcdefgh2345\t\t3\tTrigger\tAcme")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := feed.Parse(owner, text)
		if err == nil {
			if _, err := feed.Encode(got); err != nil {
				t.Errorf("%q has no body: %v", text, err)
			}
		}
	})
}
