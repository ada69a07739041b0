package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// lead makes what a bucket holds look as if it had been written by a master whose clock was ahead by so much, or, with a negative
// time, as if that time had passed.
func lead(t *testing.T, c *goredis.Client, tag string, ahead time.Duration, ids ...session.ID) {
	t.Helper()
	for _, id := range ids {
		must(t, c.HIncrBy(t.Context(), tag+"session:"+id.String(), "x", ahead.Milliseconds()).Err())
	}
	for _, entry := range c.ZRange(t.Context(), tag+"expiry", 0, -1).Val() {
		must(t, c.ZIncrBy(t.Context(), tag+"expiry", float64(ahead.Milliseconds()), entry).Err())
	}
}

// A replica takes over whose clock is an hour behind. What its master wrote waits for that hour; what is new expires in time, if
// not for the sweep, then for whoever reads it. In the end each session has expired once, whatever its lifetime.
func TestExpiryAfterAFailoverToAClockThatIsBehind(t *testing.T) {
	const hour = time.Hour
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantOf(7)
	create := func(lifetime time.Duration) session.Session {
		return mustCreate(t, s, asks, with(newSession(), lasting(lifetime))).Session
	}
	brief, longer, unused := 10*time.Millisecond, 20*time.Millisecond, 15*time.Millisecond
	before := []session.ID{create(brief).ID, create(longer).ID, create(brief).ID, create(longer).ID}
	lead(t, c, "{b07n}:", hour, before...)

	behind, alsoBehind, free := create(brief), create(longer), create(unused)
	due(t, s, behind)
	due(t, s, alsoBehind)
	due(t, s, free)
	if swept := sweepAll(t, s, 7, 10); swept.Expired != 1 || swept.Corrupt != 0 {
		t.Errorf("the first sweep: %+v, want the session whose lifetime the old master had not used", swept)
	}
	for _, id := range before {
		if _, read, err := s.Session(t.Context(), asks, id); err != nil || read.Status != session.Pending {
			t.Errorf("a session of the old master is %s before its time: %v", read.Status, err)
		}
	}
	_, read, err := s.Session(t.Context(), asks, behind.ID)
	if err != nil || read.Status != session.Expired || !read.EndedAt.Equal(behind.ExpiresAt) {
		t.Errorf("a new session that waits behind one of the old master is read as %s, %s: %v", read.Status, read.EndedAt, err)
	}

	lead(t, c, "{b07n}:", -hour, before...) // the hour passes
	if swept := sweepAll(t, s, 7, 3); swept.Expired != len(before)+1 || swept.Corrupt != 0 {
		t.Errorf("after the hour: %+v, want the %d of the old master and the one behind them", swept, len(before))
	}
	for _, id := range append(before, behind.ID, alsoBehind.ID, free.ID) {
		var kinds []v1alpha1.WebhookEvent
		for _, event := range eventsOf(t, c, id) {
			kinds = append(kinds, event.Kind)
		}
		if diff := cmp.Diff([]v1alpha1.WebhookEvent{v1alpha1.EventSessionExpired}, kinds); diff != "" {
			t.Errorf("%s (-want +told):\n%s", id, diff)
		}
	}
	if pending := pendingIn(t, c, 7); len(pending) != 0 {
		t.Errorf("still waiting: %v", pending)
	}
}
