package session_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	optional := func(t *rapid.T, name string) *int64 {
		if rapid.Bool().Draw(t, name+" given") {
			return new(rapid.Int64Range(0, session.MaxAmountCents).Draw(t, name))
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) {
		want := session.Record{
			MerchantID: "abcdefgh2345", MerchantName: rapid.String().Draw(t, "name"),
			LifetimeMillis: rapid.Int64Range(1, 86_400_000).Draw(t, "lifetime"),
			Charge: session.Charge{
				AmountCents: rapid.Int64Range(1, session.MaxAmountCents).Draw(t, "amount"),
				OrderRef:    rapid.String().Draw(t, "order"), TaxCents: optional(t, "tax"), TipCents: optional(t, "tip"),
			},
		}
		text, err := want.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := session.ParseRecord(string(text))
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Fatalf("%s, %t (-want +got):\n%s", text, ok, diff)
		}
	})
}

func BenchmarkParseRecord(b *testing.B) {
	const text = `abcdefgh2345 1250 {"n":"Acme Coffee","l":900000,"o":"1001"}`
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := session.ParseRecord(text); !ok {
			b.Fatal(text)
		}
	}
}
