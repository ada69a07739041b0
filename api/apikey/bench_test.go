package apikey_test

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

func newKey(b *testing.B) string {
	b.Helper()
	key, err := apikey.New("abcdefghijkl")
	if err != nil {
		b.Fatal(err)
	}
	return key.Reveal()
}

func BenchmarkPlausible(b *testing.B) {
	presented := newKey(b)
	b.ReportAllocs()
	for b.Loop() {
		if !apikey.Plausible(presented) {
			b.Fatal("not plausible")
		}
	}
}

func BenchmarkDigestOf(b *testing.B) {
	presented := newKey(b)
	b.ReportAllocs()
	for b.Loop() {
		_ = apikey.DigestOf(presented)
	}
}

func BenchmarkParse(b *testing.B) {
	good := newKey(b)
	typo := good[:30] + "_" + good[31:]
	wrongSum := good[:len(good)-1] + "!"
	for _, presented := range []struct{ name, key string }{{"key=good", good}, {"key=typo", typo}, {"key=wrong-checksum", wrongSum}} {
		b.Run(presented.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = apikey.Parse(presented.key)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := apikey.New("abcdefghijkl"); err != nil {
			b.Fatal(err)
		}
	}
}
