//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// failedOver is what came of failovers.
type failedOver struct {
	charges, settlements         int // acknowledged
	lostCharges, lostSettlements int
	lostPlainly                  int // of both, with a replica that followed
	refused                      int // with 503
	inFeeds, told                int // in feeds, and how often a consumer was told that some are lost
	slowest, away                time.Duration
}

func (f *failedOver) add(other failedOver) {
	f.charges += other.charges
	f.settlements += other.settlements
	f.lostCharges += other.lostCharges
	f.lostSettlements += other.lostSettlements
	f.lostPlainly += other.lostPlainly
	f.refused += other.refused
	f.inFeeds += other.inFeeds
	f.told += other.told
	f.slowest, f.away = max(f.slowest, other.slowest), max(f.away, other.away)
}

// String is for the table.
func (f *failedOver) String() string {
	return fmt.Sprintf("%d of %d acknowledged charges lost and %d of %d settlements, %d of these with a replica that had followed; none doubled; "+
		"%d events in the feeds as in the sessions, %d times a consumer was told of lost ones; "+
		"%d calls got 503, the slowest answer took %d ms; served again after %.1f s",
		f.lostCharges, f.charges, f.lostSettlements, f.settlements, f.lostPlainly, f.inFeeds, f.told, f.refused, f.slowest.Milliseconds(), f.away.Seconds())
}

// audit asks for every session that was acknowledged, and counts those that are lost. With settlements that wait for the
// replica none of these may be.
func (f *failover) audit(cutOff bool) {
	f.t.Helper()
	f.refused = int(f.refusals.Load())
	for _, o := range f.orders {
		var alive []string
		for _, id := range o.ids {
			got := f.answered(0, f.replicas[0].public, http.MethodGet, sessions+"/"+id, o.key, "")
			switch got.Status {
			case http.StatusOK:
				alive = append(alive, id)
			case http.StatusNotFound:
				f.lostCharges++
			default:
				f.t.Fatalf("a session got %d %v", got.Status, got.Body)
			}
			if id == o.settled {
				f.settlements++
				if got.Text("status") != "COMPLETED" {
					f.lostSettlements++
				}
			}
		}
		f.charges += len(o.ids)
		if len(alive) > 1 {
			f.t.Errorf("%s is charged more than once: %s", o.name, strings.Join(alive, ", "))
		}
	}
	if !cutOff {
		f.lostPlainly = f.lostCharges + f.lostSettlements
	}
	if f.slowest > bound {
		f.t.Errorf("the slowest answer took %s, want at most %s", f.slowest, bound)
	}
	if f.safe && f.lostSettlements > 0 {
		f.t.Errorf("%d of %d acknowledged settlements are lost", f.lostSettlements, f.settlements)
	}
	f.auditFeeds()
	if cutOff && f.sellers[0].consumer.told == 0 {
		f.t.Error("a consumer was not told that what it has read is lost")
	}
	f.t.Logf("replica cut off: %v; %s", cutOff, f.failedOver.String())
	f.webhooksArrive()
}

// auditFeeds compares each feed, and what its consumer has seen, with the sessions.
func (f *failover) auditFeeds() {
	f.t.Helper()
	var masters []*redis.Client
	for pair := range f.pairs.shards {
		master, _ := f.pairs.roles(f.t, pair)
		masters = append(masters, master.keeper)
	}
	for _, own := range f.sellers {
		f.inFeeds += own.consumer.audit(f.hashes(own.tag+"session:", masters...))
		f.told += own.consumer.told
	}
}

// answered calls again while it gets 503, for Redis may change its master at any time, and then wants the status; 0: any.
func (f *failover) answered(status int, base, method, path, bearer, body string) (got fixture.Answer) {
	f.t.Helper()
	eventuallySees(f.t, method+" "+path+" is answered", func() (string, bool) {
		var err error
		got, err = f.asks.call(base, method, path, bearer, body)
		return fmt.Sprintf("%d %v, %v", got.Status, got.Body, err), err == nil && !unavailable(got)
	})
	if status != 0 && got.Status != status {
		f.t.Fatalf("%s %s: %d %v; want %d", method, path, got.Status, got.Body, status)
	}
	return got
}

// webhooksArrive waits for the webhook of a charge that is made now: the dispatcher works again as well.
func (f *failover) webhooksArrive() {
	f.t.Helper()
	own := f.sellers[0]
	id := f.answered(http.StatusCreated, f.replicas[0].public, http.MethodPost, sessions, own.key, `{"amountCents":100}`).Text("sessionId")
	f.answered(http.StatusOK, f.replicas[0].public, http.MethodPost, sessions+"/"+id+"/cancel", own.key, "")
	eventually(f.t, "the webhook of a new charge arrives", func() bool { return f.hooks.heardOf(id) })
}
