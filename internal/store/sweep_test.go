package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func short(n *store.NewSession) { n.Lifetime = 10 * time.Millisecond }

// sweep does what a dispatcher does with overdue sessions.
func sweep(ctx context.Context, s *store.Store, bucket session.Bucket, limit int) (store.Swept, error) {
	overdue, err := s.Overdue(ctx, bucket, limit)
	if err != nil {
		return store.Swept{}, err
	}
	if err := s.SettleTests(ctx, overdue); err != nil {
		return store.Swept{}, err
	}
	return s.Sweep(ctx, overdue)
}

// sweepAll sweeps until nothing is due, and returns the sum.
func sweepAll(t *testing.T, s *services, bucket session.Bucket, limit int) store.Swept {
	t.Helper()
	var sum store.Swept
	for range 1000 { // more than any test needs
		swept, err := sweep(t.Context(), s.Store, bucket, limit)
		must(t, err)
		sum.Expired, sum.Corrupt = sum.Expired+swept.Expired, sum.Corrupt+swept.Corrupt
		if !swept.More {
			return sum
		}
	}
	t.Fatal("the sweep does not come to an end")
	return sum
}

// pendingIn returns the sessions of the bucket that a sweep has yet to look at.
func pendingIn(t storetest.Checker, c *goredis.Client, bucket session.Bucket) []string {
	t.Helper()
	index := bucketTagOf(bucket) + "expiry"
	entries, err := c.ZRange(t.Context(), index, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, entry := range entries {
		if strings.Trim(entry, "0123456789") != "" {
			ids = append(ids, entry)
			continue
		}
		line, err := c.LRange(t.Context(), index+":"+entry, 0, -1).Result()
		if err != nil || len(line) == 0 {
			t.Fatal("the line of lifetime", entry, "is empty:", err)
		}
		for _, key := range line {
			ids = append(ids, strings.TrimPrefix(key, bucketTagOf(bucket)+"session:"))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func TestASweepExpiresWhatNobodyReads(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantOf(7)
	want := map[session.ID]session.Session{}
	var last session.Session
	for range 7 {
		last = mustCreate(t, s, asks, with(newSession(), short)).Session
		want[last.ID] = last
	}
	fresh := mustCreate(t, s, asks, newSession()).Session
	due(t, s, last)

	first, err := sweep(t.Context(), s.Store, 7, 3)
	if err != nil || first.Expired != 3 || !first.More || first.Oldest < 0 || first.Oldest > patience {
		t.Errorf("the first sweep: %+v, %v", first, err)
	}
	if rest := sweepAll(t, s, 7, 3); rest.Expired != 4 || rest.Corrupt != 0 {
		t.Errorf("the rest: %+v", rest)
	}
	idle, err := sweep(t.Context(), s.Store, 7, 3)
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
		events := eventsOf(t, c, id)
		if len(events) != 1 || events[0].Kind != v1alpha1.EventSessionExpired || !events[0].OccurredAt.Equal(created.ExpiresAt) {
			t.Errorf("recorded %+v", events)
		}
	}
	if _, read, err := s.Session(t.Context(), asks, fresh.ID); err != nil || read.Status != session.Pending {
		t.Errorf("a session whose time is not over is %s: %v", read.Status, err)
	}
}

// Whatever ends a session, it is told of once, and the sweep passes over it in its turn.
func TestASweepPassesOverWhatHasEnded(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantOf(7)
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
		wanted := newSession()
		expires := !slices.Contains([]string{"a payment", "a failure", "a cancellation"}, desc)
		if desc == "a replay" {
			wanted = replayed
		}
		if expires {
			short(&wanted)
		}
		created := mustCreate(t, s, asks, wanted).Session
		if pending := pendingIn(t, c, 7); !slices.Equal(pending, []string{created.ID.String()}) {
			t.Fatalf("%s: before: %v, want the session", desc, pending)
		}
		if expires {
			due(t, s, created)
		}
		end(created.ID)
		if !expires { // as if its turn had come
			must(t, c.ZAdd(t.Context(), "{b07n}:expiry", goredis.Z{Score: 1, Member: millis(time.UnixMilli(0).Add(wanted.Lifetime))}).Err())
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
		for _, event := range eventsOf(t, c, created.ID) {
			if event.ID == feed.SessionEventID(created.ID, feed.MarkEnded) {
				ends++
			}
		}
		if !read.Status.Final() || ends != 1 {
			t.Errorf("%s: it is %s, and %d events tell of its end", desc, read.Status, ends)
		}
	}
}

// One session that nobody can read must not keep the others waiting, nor keep the sweeper busy.
func TestASweepPassesOverWhatItCannotRead(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantOf(7)
	const tag = "{b07n}:"
	key := func(id session.ID) string { return tag + "session:" + id.String() }
	harmed := map[string]session.ID{}
	for desc, harm := range map[string]func(session.ID) error{
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
		must(t, harm(id))
		harmed[desc] = id
	}
	gone := mustCreate(t, s, asks, with(newSession(), short)).Session.ID
	must(t, c.Del(t.Context(), key(gone)).Err())
	must(t, c.ZAdd(t.Context(), tag+"expiry", goredis.Z{Score: 1, Member: "no id at all"}).Err())
	early := mustCreate(t, s, asks, newSession()).Session // whose score is wrong
	must(t, c.ZAdd(t.Context(), tag+"expiry", goredis.Z{Score: 1, Member: early.ID.String()}).Err())
	last := mustCreate(t, s, asks, with(newSession(), short)).Session
	due(t, s, last)

	swept := sweepAll(t, s, 7, 2)
	if swept.Expired != 1 || swept.Corrupt != len(harmed) {
		t.Errorf("%+v, want 1 expired and %d corrupt", swept, len(harmed))
	}
	if _, read, err := s.Session(t.Context(), asks, last.ID); err != nil || read.Status != session.Expired {
		t.Errorf("the session behind them is %s: %v", read.Status, err)
	}
	if again, err := sweep(t.Context(), s.Store, 7, 100); err != nil || again != (store.Swept{}) {
		t.Errorf("a second sweep finds %+v, %v", again, err)
	}
	if pending := pendingIn(t, c, 7); len(pending) != len(harmed)+1 {
		t.Errorf("waiting: %v, want the %d harmed ones and one whose time is not over", pending, len(harmed))
	}
	if score := c.ZScore(t.Context(), tag+"expiry", early.ID.String()).Val(); int64(score) != early.ExpiresAt.UnixMilli() {
		t.Errorf("the session whose time is not over is due at %.0f, want %d", score, early.ExpiresAt.UnixMilli())
	}

	// Mended, it is found again after its hour.
	mended := harmed["an unknown status"]
	must(t, c.HDel(t.Context(), key(mended), "s").Err())
	now, err := s.Admit(t.Context(), asks)
	must(t, err)
	inAnHour := c.ZScore(t.Context(), tag+"expiry", key(mended)).Val()
	if in := time.UnixMilli(int64(inAnHour)).Sub(now.Now); in > time.Hour || in < time.Hour-patience {
		t.Errorf("it is looked at again in %s", in)
	}
	must(t, c.ZAdd(t.Context(), tag+"expiry", goredis.Z{Score: 1, Member: key(mended)}).Err()) // as if it had passed
	if swept := sweepAll(t, s, 7, 2); swept.Expired != 1 || swept.Corrupt != 0 {
		t.Errorf("mended: %+v", swept)
	}
}
