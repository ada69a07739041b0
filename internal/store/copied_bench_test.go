package store_test

import (
	"fmt"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// What it costs that replicas must have a settlement before it is answered: of a new settlement each, by one caller, and by
// several. Both have a replica that follows, on the same machine.
func BenchmarkSettle(b *testing.B) {
	for _, replicas := range []int{0, 1} {
		for _, callers := range []int{1, 8} {
			b.Run(fmt.Sprintf("replicas=%d/callers=%d", replicas, callers), func(b *testing.B) {
				master := redistest.Start(b, "--repl-diskless-sync-delay", "0")
				follow(b, master)
				s := open(b, master.URL(), copied(replicas, patience))
				asks := busyMerchant()
				sessions := make(chan session.ID, b.N)
				for range b.N {
					sessions <- mustCreate(b, s, asks, newSession()).Session.ID
				}
				b.SetParallelism(callers)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(settling *testing.PB) {
					for settling.Next() {
						if _, err := s.Settle(b.Context(), <-sessions, paid("rail-1")); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
