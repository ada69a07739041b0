package published_test

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
)

func BenchmarkDecodeKey(b *testing.B) {
	secret, err := published.EncodeKey("credentials", keyRecord())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := published.DecodeKey(secret); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeMerchant(b *testing.B) {
	configMap, err := published.EncodeMerchant("credentials", merchantRecord())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := published.DecodeMerchant(configMap); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeKey(b *testing.B) {
	record := keyRecord()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := published.EncodeKey("credentials", record); err != nil {
			b.Fatal(err)
		}
	}
}
