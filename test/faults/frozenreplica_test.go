//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"testing"
)

// tryFrozenReplica reports payments while the replica that must have them is frozen. The second report of one changes
// nothing, so it writes nothing; since Redis 7.2 WAIT answers at once on a connection that has written nothing.
func tryFrozenReplica(t *testing.T) (int, string) {
	t.Helper()
	p := watchedBySentinels(t)
	master, replica := p.roles(t, 0)
	// Not by the Sentinels: a master that nobody watches is not replaced while its replica is frozen.
	s := newStageOn(t, "redis://"+master.Addr()+"/0", 2, 0, "--settlement-replicas", "1")
	s.merchant("coffee")
	key, rail := s.apiKey("till", "coffee"), s.railToken()
	s.settlesEverywhere(rail)
	rounds, refused := 2**intensity, 0
	report := func(n int, id string) answer {
		got, err := newCaller().call(s.replicas[n%2].internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", rail,
			`{"paymentRef":"card-1","outcome":"COMPLETED","amountCents":1250}`)
		s.must(err)
		return got
	}
	for range rounds {
		id := s.mustCall(http.StatusCreated, s.replicas[0].public, http.MethodPost, sessions, key, `{"amountCents":1250}`).text("sessionId")
		replica.Pause()
		for n := range 8 { // on both API replicas, and on connections that reported before
			if got := report(n, id); !got.unavailable() || got.header.Get("Retry-After") == "" {
				t.Errorf("report %d, with the replica frozen: %d %v; want 503 with Retry-After", n+1, got.status, got.body)
				continue
			}
			refused++
		}
		replica.Resume()
		eventuallySees(t, "the report is answered as the first one would have been", func() (string, bool) {
			got := report(0, id)
			return fmt.Sprint(got.status, got.body), got.status == http.StatusOK && got.body["applied"] == true
		})
	}
	return rounds, fmt.Sprintf("%d reports got 503 while the replica was frozen, each session was settled once it followed", refused)
}
