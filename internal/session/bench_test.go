package session_test

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = session.NewID("abcdefgh2345", false)
	}
}

func BenchmarkParseID(b *testing.B) {
	text := session.NewID("abcdefgh2345", false).String()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := session.ParseID(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBucketOf(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = session.BucketOf("abcdefghijkl")
	}
}

func BenchmarkFingerprint(b *testing.B) {
	for _, charge := range []struct {
		name string
		session.Charge
	}{
		{"fields=1", session.Charge{AmountCents: 1250}},
		{"fields=5", session.Charge{
			AmountCents: 1250, OrderRef: "table 7, order 4711", TaxCents: new(int64(200)), TipCents: new(int64(100)), CustomerEmail: "payer@example.com",
		}},
	} {
		b.Run(charge.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = charge.Fingerprint()
			}
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	charge := session.Charge{AmountCents: 1250, OrderRef: "table 7, order 4711", TaxCents: new(int64(200)), TipCents: new(int64(100))}
	b.ReportAllocs()
	for b.Loop() {
		if err := charge.Validate(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIdempotencyKey(b *testing.B) {
	for _, header := range []struct{ name, value string }{
		{"form=bare", "till-1-000000004711"}, {"form=quoted", `"till-1-000000004711"`},
	} {
		b.Run(header.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				key, err := session.ParseIdempotencyKey(header.value)
				if err != nil {
					b.Fatal(err)
				}
				_ = key.Hash()
			}
		})
	}
}
