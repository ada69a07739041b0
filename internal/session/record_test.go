package session_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// A record is read as it was written, also by a reader of an earlier version.
func TestRecord_RoundTrip(t *testing.T) {
	optional := func(t *rapid.T, name string) *int64 {
		if rapid.Bool().Draw(t, name+" given") {
			return new(rapid.Int64Range(0, session.MaxAmountCents).Draw(t, name))
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) {
		want := session.Record{
			MerchantID: "abcdefgh2345", MerchantName: rapid.String().Draw(t, "name"), KeyID: "2yylmkzckvhj", TestMode: rapid.Bool().Draw(t, "test mode"),
			Currency:       rapid.SampledFrom([]string{"USD", "EUR", "KWD"}).Draw(t, "currency"),
			LifetimeMillis: rapid.Int64Range(1, 86_400_000).Draw(t, "lifetime"),
			Charge: session.Charge{
				AmountCents: rapid.Int64Range(1, session.MaxAmountCents).Draw(t, "amount"),
				OrderRef:    rapid.String().Draw(t, "order"), Description: rapid.String().Draw(t, "description"), ReturnURL: rapid.String().Draw(t, "return URL"), TaxCents: optional(t, "tax"), TipCents: optional(t, "tip"),
			},
		}
		text := string(want.Append(nil))
		for _, stored := range []string{text, text + "\ta field of a later version"} {
			got, ok := session.ParseRecord(stored)
			if diff := cmp.Diff(want, got); !ok || diff != "" {
				t.Fatalf("%q, %t (-want +got):\n%s", stored, ok, diff)
			}
		}
	})
}

// A longer record leaves the compact form of a hash with the defaults of Redis.
func TestAppend_UsualRecordIsCompact(t *testing.T) {
	record := session.Record{MerchantID: "abcdefgh2345", MerchantName: "Acme Coffee", KeyID: "2yylmkzckvhj", Currency: "EUR", LifetimeMillis: 900_000}
	record.AmountCents, record.OrderRef = 1250, "1001"
	if text := string(record.Append(nil)); len(text) > 64 || text != "abcdefgh2345\t1250\t900000\t2yylmkzckvhj\tEUR\t\t\t1001\tAcme Coffee\t\t" {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	record := session.Record{MerchantID: "abcdefgh2345", MerchantName: "Acme Coffee", LifetimeMillis: 900_000}
	record.AmountCents, record.OrderRef = 1250, "1001"
	b.ReportAllocs()
	var room [128]byte
	for b.Loop() {
		record.Append(room[:0])
	}
}

func BenchmarkParseRecord(b *testing.B) {
	const text = "abcdefgh2345\t1250\t900000\t2yylmkzckvhj\t\t\t\t1001\tAcme Coffee"
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := session.ParseRecord(text); !ok {
			b.Fatal(text)
		}
	}
}
