package ratelimit_test

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
)

func BenchmarkHeaders(b *testing.B) {
	quota := ratelimit.Policy{RequestsPerSecond: 50, Burst: 100}.Admitted(time.Second)
	b.Run("header=RateLimit-Policy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = quota.PolicyHeader("merchant")
		}
	})
	b.Run("header=RateLimit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = quota.Header("merchant")
		}
	})
}

func BenchmarkAdmitted(b *testing.B) {
	policy := ratelimit.Policy{RequestsPerSecond: 50, Burst: 100}
	b.ReportAllocs()
	for b.Loop() {
		_ = policy.Admitted(time.Second)
	}
}
