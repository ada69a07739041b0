package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/apiserver/store"
)

func TestForHowLongSomethingIsDue(t *testing.T) {
	s := newOutboxScene(t)
	overdue := func() store.Overdue {
		t.Helper()
		found, err := s.Overdue(t.Context(), s.bucket())
		must(t, err)
		return found
	}
	if idle := overdue(); idle != (store.Overdue{}) {
		t.Errorf("with nothing to do: %+v", idle)
	}

	event := s.event(t)
	pending := mustCreate(t, s.Store, s.asks, newSession()).Session
	if found := overdue(); found.Session != 0 || found.Event > patience {
		t.Errorf("with a fresh session and a fresh event: %+v", found)
	}
	score := func(key, member string, at time.Time) {
		t.Helper()
		must(t, s.redis.ZAdd(t.Context(), s.tag+key, redis.Z{Score: float64(at.UnixMilli()), Member: member}).Err())
	}
	score("due", event, time.Now().Add(-time.Hour))
	score("expiry", pending.ID.String(), time.Now().Add(-2*time.Hour))
	found := overdue()
	if found.Event < time.Hour || found.Event > time.Hour+patience || found.Session < 2*time.Hour || found.Session > 2*time.Hour+patience {
		t.Errorf("%+v, want an event due for an hour, and a session for two", found)
	}

	s.one(t) // an event that is leased is taken care of
	if found := overdue(); found.Event != 0 {
		t.Errorf("with the event leased: %+v", found)
	}
}
