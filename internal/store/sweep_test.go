package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

func TestSweep(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantIn(7)
	want := map[session.ID]session.Session{}
	var last session.Session
	for range 7 {
		last = mustCreate(t, s, asks, with(newSession(), short)).Session
		want[last.ID] = last
	}
	fresh := mustCreate(t, s, asks, newSession()).Session
	due(t, s, last)

	first, err := s.Sweep(t.Context(), 7, 3)
	if err != nil || first.Expired != 3 || !first.More || first.Oldest < 0 || first.Oldest > patience {
		t.Errorf("the first sweep: %+v, %v", first, err)
	}
	if rest := sweepAll(t, s, 7, 3); rest.Expired != 4 || rest.Corrupt != 0 {
		t.Errorf("the rest: %+v", rest)
	}
	idle, err := s.Sweep(t.Context(), 7, 3)
	if err != nil || idle != (store.Swept{}) {
		t.Errorf("with nothing due: %+v, %v", idle, err)
	}
	if pending := pendingIn(t, c, 7); !slices.Equal(pending, []string{fresh.ID.String()}) {
		t.Errorf("still waiting: %v, want %s only", pending, fresh.ID)
	}
	for id, created := range want {
		_, read, err := s.Session(t.Context(), asks, id)
		if err != nil || read.Status != session.Expired || !read.EndedAt.Equal(created.ExpiresAt) {
			t.Errorf("read as %s, ended at %s, want %s: %v", read.Status, read.EndedAt, created.ExpiresAt, err)
		}
		events := sessionEvents(t, c, id)
		if len(events) != 1 || events[0].Kind != v1alpha1.EventSessionExpired || !events[0].OccurredAt.Equal(created.ExpiresAt) {
			t.Errorf("recorded %+v", events)
		}
	}
	if _, read, err := s.Session(t.Context(), asks, fresh.ID); err != nil || read.Status != session.Pending {
		t.Errorf("a session whose time is not over is %s: %v", read.Status, err)
	}
}

// A session has one event of its end, whatever ended it, and the sweep passes over it.
func TestSweep_EndedSessions(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantIn(7)
	replayed := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	for desc, end := range map[string]func(session.ID){
		"a payment":      func(id session.ID) { _, err := s.Settle(t.Context(), id, paid("a")); must(t, err) },
		"a failure":      func(id session.ID) { _, err := s.Settle(t.Context(), id, failed("a")); must(t, err) },
		"a cancellation": func(id session.ID) { _, _, err := s.Cancel(t.Context(), asks, id); must(t, err) },
		"a payer's read": func(id session.ID) { _, _, err := s.PublicSession(t.Context(), payer(), id); must(t, err) },
		"the sweep":      func(session.ID) { sweepAll(t, s, 7, 10) },
		"a late payment": func(id session.ID) { _, err := s.Settle(t.Context(), id, paid("a")); must(t, err) },
		"a merchant's":   func(id session.ID) { _, _, err := s.Session(t.Context(), asks, id); must(t, err) },
		"a replay":       func(session.ID) { mustCreate(t, s, asks, replayed) },
		"a late wish":    func(id session.ID) { _, _, _ = s.Cancel(t.Context(), asks, id) },
	} {
		request := newSession()
		expires := !slices.Contains([]string{"a payment", "a failure", "a cancellation"}, desc)
		if desc == "a replay" {
			request = replayed
		}
		if expires {
			short(&request)
		}
		created := mustCreate(t, s, asks, request).Session
		if pending := pendingIn(t, c, 7); !slices.Equal(pending, []string{created.ID.String()}) {
			t.Fatalf("%s: before: %v, want the session", desc, pending)
		}
		if expires {
			due(t, s, created)
		}
		end(created.ID)
		if !expires { // as if its turn had come
			must(t, c.ZAdd(t.Context(), "{b07n}:expiry", goredis.Z{Score: 1, Member: millis(time.UnixMilli(0).Add(request.Lifetime))}).Err())
		}
		if swept := sweepAll(t, s, 7, 10); swept != (store.Swept{}) {
			t.Errorf("%s: a sweep finds %+v", desc, swept)
		}
		if pending := pendingIn(t, c, 7); len(pending) != 0 {
			t.Errorf("%s: still waiting: %v", desc, pending)
		}
		_, read, err := s.Session(t.Context(), asks, created.ID)
		must(t, err)
		ends := 0
		for _, event := range sessionEvents(t, c, created.ID) {
			if event.ID == feed.SessionEventID(created.ID, feed.MarkEnded) {
				ends++
			}
		}
		if !read.Status.Final() || ends != 1 {
			t.Errorf("%s: it is %s, with %d events of its end", desc, read.Status, ends)
		}
	}
}

// One unreadable session must not keep the others waiting, nor keep the sweep busy.
func TestSweep_UnreadableSessions(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantIn(7)
	const tag = "{b07n}:"
	key := func(id session.ID) string { return tag + "session:" + id.String() }
	damaged := map[string]session.ID{}
	for desc, damage := range map[string]func(session.ID) error{
		"an unknown status":              func(id session.ID) error { return c.HSet(t.Context(), key(id), "s", "PAID").Err() },
		"no expiry":                      func(id session.ID) error { return c.HDel(t.Context(), key(id), "x").Err() },
		"an expiry that is no number":    func(id session.ID) error { return c.HSet(t.Context(), key(id), "x", "nan").Err() },
		"a final status without its end": func(id session.ID) error { return c.HSet(t.Context(), key(id), "s", "FAILED").Err() },
		"another type":                   func(id session.ID) error { return c.Set(t.Context(), key(id), "text", 0).Err() },
		"an event of another type": func(id session.ID) error {
			return c.Set(t.Context(), tag+"event:"+feed.SessionEventID(id, feed.MarkEnded), "text", 0).Err()
		},
	} {
		id := mustCreate(t, s, asks, with(newSession(), short)).Session.ID
		must(t, damage(id))
		damaged[desc] = id
	}
	gone := mustCreate(t, s, asks, with(newSession(), short)).Session.ID
	must(t, c.Del(t.Context(), key(gone)).Err())
	must(t, c.ZAdd(t.Context(), tag+"expiry", goredis.Z{Score: 1, Member: "no id at all"}).Err())
	early := mustCreate(t, s, asks, newSession()).Session // whose score is wrong
	must(t, c.ZAdd(t.Context(), tag+"expiry", goredis.Z{Score: 1, Member: early.ID.String()}).Err())
	last := mustCreate(t, s, asks, with(newSession(), short)).Session
	due(t, s, last)

	swept := sweepAll(t, s, 7, 2)
	if swept.Expired != 1 || swept.Corrupt != len(damaged) {
		t.Errorf("%+v, want 1 expired and %d corrupt", swept, len(damaged))
	}
	if _, read, err := s.Session(t.Context(), asks, last.ID); err != nil || read.Status != session.Expired {
		t.Errorf("the session behind them is %s: %v", read.Status, err)
	}
	if again, err := s.Sweep(t.Context(), 7, 100); err != nil || again != (store.Swept{}) {
		t.Errorf("a second sweep finds %+v, %v", again, err)
	}
	if pending := pendingIn(t, c, 7); len(pending) != len(damaged)+1 {
		t.Errorf("waiting: %v, want the %d damaged ones and one whose time is not over", pending, len(damaged))
	}
	if score := c.ZScore(t.Context(), tag+"expiry", early.ID.String()).Val(); int64(score) != early.ExpiresAt.UnixMilli() {
		t.Errorf("the session whose time is not over is due at %.0f, want %d", score, early.ExpiresAt.UnixMilli())
	}

	// Mended, it is found again after its hour.
	repaired := damaged["an unknown status"]
	must(t, c.HDel(t.Context(), key(repaired), "s").Err())
	now, err := s.Admit(t.Context(), asks)
	must(t, err)
	inAnHour := c.ZScore(t.Context(), tag+"expiry", key(repaired)).Val()
	if in := time.UnixMilli(int64(inAnHour)).Sub(now.Now); in > time.Hour || in < time.Hour-patience {
		t.Errorf("it is looked at again in %s", in)
	}
	must(t, c.ZAdd(t.Context(), tag+"expiry", goredis.Z{Score: 1, Member: key(repaired)}).Err()) // as if it had passed
	if swept := sweepAll(t, s, 7, 2); swept.Expired != 1 || swept.Corrupt != 0 {
		t.Errorf("repaired: %+v", swept)
	}
}

// Merchants choose lifetimes of their own; none of them waits for another.
func TestSweep_EachLifetime(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantIn(7)
	var last session.Session
	for i := range 6 { // two in each queue
		last = mustCreate(t, s, asks, with(newSession(), lasting(time.Duration(10+i%3)*time.Millisecond))).Session
	}
	waits := mustCreate(t, s, asks, with(newSession(), lasting(time.Hour))).Session
	due(t, s, last)
	first, err := s.Sweep(t.Context(), 7, 5)
	if err != nil || first.Expired != 3 || !first.More || first.Oldest <= 0 {
		t.Errorf("the first sweep: %+v, %v; want one of each lifetime expired, and more", first, err)
	}
	if rest := sweepAll(t, s, 7, 5); rest.Expired != 3 {
		t.Errorf("the rest: %+v, want the other three", rest)
	}
	if pending := pendingIn(t, c, 7); !cmp.Equal(pending, []string{waits.ID.String()}) {
		t.Errorf("waiting: %v, want %s", pending, waits.ID)
	}
	if at := c.ZScore(t.Context(), "{b07n}:expiry", "3600000").Val(); int64(at) != waits.ExpiresAt.UnixMilli() {
		t.Errorf("its queue is due at %.0f, want %d", at, waits.ExpiresAt.UnixMilli())
	}
}

// A neighbour whose Merchant had a hundred lifetimes costs the sweep no more trips than one lifetime, so others do not wait for it.
func TestSweep_NeighbourWithManyLifetimes(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	neighbour := merchantIn(7)
	due(t, s, mustCreate(t, s, neighbour, with(newSession(), short)).Session)
	sweepAll(t, s, 7, 100) // the server gets to know the scripts
	for i := range 100 {
		mustCreate(t, s, neighbour, with(newSession(), lasting(time.Duration(10+i)*time.Millisecond)))
	}
	victim := mustCreate(t, s, merchantIn(7), with(newSession(), lasting(time.Second))).Session
	due(t, s, victim)
	must(t, c.ConfigResetStat(t.Context()).Err())
	if swept := sweepAll(t, s, 7, 100); swept.Expired != 101 {
		t.Errorf("%+v, want all 101 expired", swept)
	}
	if events := sessionEvents(t, c, victim.ID); len(events) != 1 {
		t.Errorf("the victim's merchant gets %+v", events)
	}
	if trips := scriptsRun(t, c); trips > 4 {
		t.Errorf("two sweeps of 100 sessions took %d trips, want two each", trips)
	}
}

// A neighbour has many sessions of each of its lifetimes, of which only the first is due. They end no sweep before it has seen what else is due.
func TestSweep_NeighbourWithLongQueues(t *testing.T) {
	const limit = 10
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	neighbour := merchantIn(7)
	for i := range 5 {
		lifetime := lasting(time.Duration(10+i) * time.Millisecond)
		mustCreate(t, s, neighbour, with(newSession(), lifetime))
		for range limit {
			waits := mustCreate(t, s, neighbour, with(newSession(), lifetime)).Session
			must(t, c.HIncrBy(t.Context(), "{b07n}:session:"+waits.ID.String(), "x", time.Hour.Milliseconds()).Err())
		}
	}
	victim := mustCreate(t, s, merchantIn(7), with(newSession(), lasting(100*time.Millisecond))).Session
	due(t, s, victim)
	if swept := sweepAll(t, s, 7, limit); swept.Expired != 6 {
		t.Errorf("%+v, want the first session of each lifetime expired", swept)
	}
	if events := sessionEvents(t, c, victim.ID); len(events) != 1 {
		t.Errorf("the victim's merchant gets %+v", events)
	}
}

// A queue is due when its first session is, also when those before it are gone.
func TestSweep_QueueIsDueWithFirstSession(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantIn(7)
	first := mustCreate(t, s, asks, newSession()).Session
	second := mustCreate(t, s, asks, newSession()).Session
	_, _, err := s.Cancel(t.Context(), asks, first.ID)
	must(t, err)
	must(t, c.ZAdd(t.Context(), "{b07n}:expiry", goredis.Z{Score: 1, Member: "900000"}).Err()) // as if its turn had come
	if swept, err := s.Sweep(t.Context(), 7, 10); err != nil || swept != (store.Swept{}) {
		t.Errorf("%+v, %v; want nothing to expire", swept, err)
	}
	if pending := pendingIn(t, c, 7); !cmp.Equal(pending, []string{second.ID.String()}) {
		t.Errorf("waiting: %v, want %s", pending, second.ID)
	}
	if at := c.ZScore(t.Context(), "{b07n}:expiry", "900000").Val(); int64(at) != second.ExpiresAt.UnixMilli() {
		t.Errorf("the queue is due at %.0f, want %d", at, second.ExpiresAt.UnixMilli())
	}
}

// Should the index get lost, new sessions bring it back.
func TestSweep_LostQueueEntry(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantIn(7)
	var last session.Session
	for i := range 65 {
		last = mustCreate(t, s, asks, with(newSession(), short)).Session
		if i == 0 {
			must(t, c.Del(t.Context(), "{b07n}:expiry").Err())
		}
	}
	due(t, s, last)
	if swept := sweepAll(t, s, 7, 10); swept.Expired != 65 {
		t.Errorf("%+v, want all 65 expired", swept)
	}
}

func TestSweep_UnreadableQueue(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	expired := mustCreate(t, s, merchantIn(7), with(newSession(), short)).Session
	must(t, c.Set(t.Context(), "{b07n}:expiry:5", "text", 0).Err())
	must(t, c.ZAdd(t.Context(), "{b07n}:expiry", goredis.Z{Score: 1, Member: "5"}).Err())
	due(t, s, expired)
	if swept, err := s.Sweep(t.Context(), 7, 10); err != nil || swept.Expired != 1 || swept.Corrupt != 1 {
		t.Errorf("%+v, %v; want one expired and one corrupt", swept, err)
	}
	if again, err := s.Sweep(t.Context(), 7, 10); err != nil || again != (store.Swept{}) {
		t.Errorf("a second sweep finds %+v, %v", again, err)
	}
}

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
// not by the sweep, then by the first read. In the end each session has expired once, whatever its lifetime.
func TestSweep_FailoverToClockBehind(t *testing.T) {
	const hour = time.Hour
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantIn(7)
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
		for _, event := range sessionEvents(t, c, id) {
			kinds = append(kinds, event.Kind)
		}
		if diff := cmp.Diff([]v1alpha1.WebhookEvent{v1alpha1.EventSessionExpired}, kinds); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
	if pending := pendingIn(t, c, 7); len(pending) != 0 {
		t.Errorf("still waiting: %v", pending)
	}
}
