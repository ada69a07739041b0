package directory

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var populations = [...]int{100, 100_000}

// populate publishes keys of a merchant for each hundred, and returns what is presented.
func (f fixture) populate(b *testing.B, keys int) []string {
	b.Helper()
	presented := make([]string, keys)
	for i := range presented {
		const each = 100
		merchant := types.UID(fmt.Sprintf("merchant-%d", i/each))
		if i%each == 0 {
			_ = f.merchantInformer.Add(newConfigMap(b, merchantRecord(merchant)))
		}
		presented[i], _ = f.publish(b, types.UID(fmt.Sprintf("key-%d", i)), merchant)
	}
	return presented
}

// Each iteration looks up another key, so that its memory is cold.
func BenchmarkIdentify(b *testing.B) {
	for _, keys := range populations {
		f := newFixture()
		known := f.populate(b, keys)
		strangers := make([]string, len(known))
		for i := range strangers {
			key, err := apikey.New(published.ID(types.UID(fmt.Sprintf("stranger-%d", i))))
			if err != nil {
				b.Fatal(err)
			}
			strangers[i] = key.Reveal()
		}
		const apart = 7919
		b.Run(fmt.Sprintf("keys=%d/answer=200", keys), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n += apart {
				if _, err := f.Identify(known[n%keys], now); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("keys=%d/answer=401", keys), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n += apart {
				if _, err := f.Identify(strangers[n%keys], now); err == nil {
					b.Fatal("a stranger was identified")
				}
			}
		})
	}
}

// What a watch brings: an object is decoded and takes the place of the one before.
func BenchmarkUpdate(b *testing.B) {
	for _, keys := range populations {
		f := newFixture()
		f.populate(b, keys)
		_, record := issue(b, "key-7", "merchant-0")
		secret := newSecret(b, record)
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = f.keyInformer.Update(secret)
			}
		})
	}
}

func BenchmarkAllows(b *testing.B) {
	for _, blocks := range []int{0, 1, 16, 64} {
		record := merchantRecord("acme", func(r *published.MerchantRecord) {
			for i := range blocks {
				r.IPAllowlist = append(r.IPAllowlist, v1alpha1.IPBlock(fmt.Sprintf("198.51.100.%d/32", i)))
			}
		})
		merchant, err := decodeMerchant(newConfigMap(b, record))
		if err != nil {
			b.Fatal(err)
		}
		for _, address := range []struct{ name, text string }{{"ip=4", "203.0.113.7"}, {"ip=6", "2001:db8::7"}} {
			parsed := netip.MustParseAddr(address.text)
			b.Run(fmt.Sprintf("blocks=%d/%s", blocks, address.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if merchant.Allowlist.Allows(parsed) != (blocks == 0) {
						b.Fatal("wrong")
					}
				}
			})
		}
	}
}

// BenchmarkMemory reports the memory per key.
func BenchmarkMemory(b *testing.B) {
	const keys = 100_000
	for b.Loop() {
		before := alive()
		f := newFixture()
		f.populate(b, keys)
		f.log, f.events = nil, nil
		b.ReportMetric(float64(alive()-before)/keys, "bytes/key")
		runtime.KeepAlive(f)
	}
}

func alive() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
