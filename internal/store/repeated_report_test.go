package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// pass lets the time pass that keys are kept for; those whose time is over end.
func pass(t *testing.T, c *goredis.Client, passed time.Duration) {
	t.Helper()
	for _, key := range c.Keys(t.Context(), "*").Val() {
		left := c.PTTL(t.Context(), key).Val()
		if left < 0 {
			continue // it has no end
		}
		must(t, c.PExpire(t.Context(), key, left-passed).Err())
	}
}

// A rail that had no answer asks again when it can, which may be after a long weekend. "No such session" would have it send
// money back for goods that were handed over.
func TestAReportIsAnsweredAsTheFirstTimeForThirtyDays(t *testing.T) {
	server := redistest.Start(t)
	s, c := storetest.OpenWith(t, server.URL(), store.Options{SessionRetention: 24 * time.Hour}), client(t, server)
	asks := merchant()
	type report struct {
		payment session.Payment
		id      session.ID
		first   store.Settlement
	}
	reports := map[string]report{}
	for desc, payment := range map[string]session.Payment{
		"paid": paid("a"), "failed": failed("a"), "late": paid("a"), "another amount": of(7, paid("a")), "merchant deleted": paid("a"),
	} {
		id := mustCreate(t, s, asks, newSession()).Session.ID
		if desc == "late" {
			_, _, err := s.Cancel(t.Context(), asks, id)
			must(t, err)
		}
		settle := s.Settle
		if desc == "merchant deleted" {
			settle = s.SettleDeleted
		}
		first, err := settle(t.Context(), id, payment)
		must(t, err)
		first.Repeated, first.MerchantDeleted = true, false // counted once
		reports[desc] = report{payment, id, first}
	}
	unreported := mustCreate(t, s, asks, newSession()).Session.ID
	_, _, err := s.Cancel(t.Context(), asks, unreported)
	must(t, err)

	const days = 24 * time.Hour
	for range 3 { // a repetition does not begin the days anew
		pass(t, c, 29*days/3)
		for desc, report := range reports {
			again, err := s.Settle(t.Context(), report.id, report.payment)
			if diff := cmp.Diff(report.first, again, sameSession); err != nil || diff != "" {
				t.Errorf("%s, reported again: %v (-first +again):\n%s", desc, err, diff)
			}
		}
	}
	if _, err := s.Settle(t.Context(), unreported, paid("a")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a report on a session that no rail had reported of: %v, want ErrNotFound", err)
	}
	pass(t, c, 2*days)
	for desc, report := range reports {
		if _, err := s.Settle(t.Context(), report.id, report.payment); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s, after 31 days: %v, want ErrNotFound", desc, err)
		}
	}
}

// A platform that keeps sessions for longer does not lose them to a report.
func TestAReportEndsNoSessionSooner(t *testing.T) {
	const kept = 60 * 24 * time.Hour
	server := redistest.Start(t)
	s, c := storetest.OpenWith(t, server.URL(), store.Options{SessionRetention: kept}), client(t, server)
	asks := merchant()
	created := mustCreate(t, s, asks, with(newSession(), lasting(24*time.Hour))).Session
	_, err := s.Settle(t.Context(), created.ID, paid("a"))
	must(t, err)
	pass(t, c, kept)
	if _, _, err := s.Session(t.Context(), asks, created.ID); err != nil {
		t.Errorf("after %s: %v", kept, err)
	}
}
