package dispatcher

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// Payments to be refunded are counted by how long they have waited, until a rail has confirmed.
func TestCountOwed(t *testing.T) {
	f := newFixture(t)
	d := f.dispatcher(t)
	owed := func(when string, want ...float64) {
		t.Helper()
		_, err := d.countOwed(t.Context())
		dispatchertest.Must(t, err)
		for i, age := range []string{"0h", "1h", "24h", "72h"} {
			if got := testutil.ToFloat64(d.metrics.refundsOwed.WithLabelValues(age)); got != want[i] {
				t.Errorf("%s: %v have waited for %s, want %v", when, got, age, want[i])
			}
		}
	}
	owed("at first", 0, 0, 0, 0)
	asks := storetest.Merchant()
	_, created, err := f.Store.CreateSession(t.Context(), asks, storetest.NewSession())
	dispatchertest.Must(t, err)
	id, rail := created.Session.ID, session.NewRail("bank")
	for _, ref := range []string{"1", "2", "3"} { // the first one pays
		payment := session.Payment{Rail: rail, Ref: ref, Outcome: session.Completed, AmountCents: created.Session.Charge.AmountCents}
		_, err := f.Store.Settle(t.Context(), id, payment)
		dispatchertest.Must(t, err)
	}
	owed("refused", 2, 0, 0, 0)
	c := f.Redis(t)
	ago := float64(time.Now().Add(-25 * time.Hour).UnixMilli())
	dispatchertest.Must(t, c.ZAdd(t.Context(), storetest.Tag(asks.MerchantID)+"owed", goredis.Z{Score: ago, Member: id.String() + " " + rail.Scope("2")}).Err())
	owed("a day later", 2, 1, 1, 0)
	for _, ref := range []string{"2", "3"} {
		refund := session.Refund{Rail: rail, Ref: "back-" + ref, PaymentRef: ref, AmountCents: created.Session.Charge.AmountCents}
		_, err := f.Store.Refund(t.Context(), id, refund)
		dispatchertest.Must(t, err)
	}
	owed("refunded", 0, 0, 0, 0)
}
