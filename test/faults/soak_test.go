//go:build faults

package faults

import (
	"testing"
	"time"
)

// TestSoak charges for as long as -soak says, and shows what the roles take meanwhile. What they take at the end must
// not be more than what they took when they had warmed up.
func TestSoak(t *testing.T) {
	s := newStorm(t, 2, 2)
	roles := []*process{s.replicas[0].process, s.replicas[1].process, s.dispatchers[0], s.dispatchers[1]}
	const looks = 20
	warm := make([]map[string]float64, len(roles))
	tick := time.NewTicker(*soaking / looks)
	defer tick.Stop()
	began := time.Now()
	s.rage(looks, func(n int) {
		<-tick.C
		for i, role := range roles {
			now := gauges(t, role.ops)
			t.Logf("%6.0f s  %-12s %4.0f goroutines %5.1f MB %3.0f files", time.Since(began).Seconds(), role.name,
				now[goroutines], now[resident]/1e6, now[openFiles])
			switch {
			case n == looks/4:
				warm[i] = now
			case n == looks-1 && (now[goroutines] > warm[i][goroutines]+50 || now[resident] > warm[i][resident]+spareMemory/2):
				t.Errorf("%s has grown", role.name)
			}
		}
	})
	t.Log(s.audit())
}
