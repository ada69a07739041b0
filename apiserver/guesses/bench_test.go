package guesses

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
)

func BenchmarkWait(b *testing.B) {
	for _, guessers := range []struct {
		name  string
		count int
	}{{"guessers=0", 0}, {"guessers=1", 1}, {"guessers=10000", 10_000}} {
		b.Run(guessers.name, func(b *testing.B) {
			l := New(ratelimit.Policy{RequestsPerSecond: 20, Burst: 200}, time.Now)
			for n := range guessers.count {
				l.Wrong(numbered(n))
			}
			b.ReportAllocs()
			for b.Loop() {
				if l.Wait(other) != 0 {
					b.Fatal("somebody else must wait")
				}
			}
		})
	}
}

// On every processor at once, as requests come.
func BenchmarkWaitParallel(b *testing.B) {
	l := New(ratelimit.Policy{RequestsPerSecond: 20, Burst: 200}, time.Now)
	l.Wrong(guesser)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Wait(other)
		}
	})
}

func BenchmarkWrong(b *testing.B) {
	for _, addresses := range []struct {
		name  string
		count int
	}{{"addresses=1", 1}, {"addresses=100000", 100_000}} {
		b.Run(addresses.name, func(b *testing.B) {
			l := New(ratelimit.Policy{RequestsPerSecond: 20, Burst: 200}, time.Now)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				l.Wrong(numbered(n % addresses.count))
				n++
			}
		})
	}
}
