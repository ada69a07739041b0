//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func limitFaults() []fault {
	const promised = "never more than burst + rate × time admitted"
	return []fault{
		{"P3", "a flood over 3 replicas", promised, flooded(func(*deployment, int) {})},
		{"P3", "a flood over 3 replicas, kill -9 of one and of Redis with AOF, SCRIPT FLUSH", promised, flooded(func(s *deployment, n int) {
			switch n % 3 {
			case 0:
				s.replicas[n%len(s.replicas)].kill()
				s.replicas[n%len(s.replicas)].restart(s.t)
			case 1:
				s.redis.Kill()
				s.redis.Start()
			case 2:
				s.must(s.keeper.ScriptFlush(s.t.Context()).Err())
			}
		})},
	}
}

func flooded(harm func(s *deployment, n int)) func(*testing.T) (int, string) {
	return func(t *testing.T) (int, string) {
		t.Helper()
		const rate, burst = 40, 25
		s := deploy(t, 3, 0, durable...)
		merchant := s.Merchant("coffee", func(m *v1alpha1.Merchant) {
			m.Spec.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: rate, Burst: burst}
		})
		key := s.apiKey("till", "coffee")
		rate64 := space(merchant) + "rate:"
		eventually(t, "the limiter is back at its full burst", func() bool {
			keys, err := s.keeper.Keys(t.Context(), rate64+"*").Result()
			return err == nil && len(keys) == 0
		})
		var admitted, limited atomic.Int64
		start := time.Now()
		stop := callers(9, func(c caller, _, i int) {
			got, err := c.call(s.replicas[i%len(s.replicas)].public, http.MethodGet, me, key, "")
			switch {
			case err != nil || unavailable(got):
			case got.Status == http.StatusOK:
				admitted.Add(1)
			case got.Status == http.StatusTooManyRequests && got.Header.Get("Retry-After") != "":
				limited.Add(1)
			default:
				t.Errorf("answered %d %v", got.Status, got.Header)
			}
		})
		defer stop()
		rounds := 3 * *intensity
		for n := range rounds {
			harm(s, n)
			more, less := limited.Load()+100, admitted.Load()+20
			eventually(t, "the flood is limited", func() bool { return limited.Load() >= more && admitted.Load() >= less })
		}
		stop()
		took := time.Since(start).Seconds()
		most := burst + rate*took
		if got := float64(admitted.Load()); got > most {
			t.Errorf("%.0f were admitted in %.2f s, want at most %.0f", got, took, most)
		}
		return rounds, fmt.Sprintf("%d admitted and %d limited in %.1f s, at most %.0f allowed", admitted.Load(), limited.Load(), took, most)
	}
}
