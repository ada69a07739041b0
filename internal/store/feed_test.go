package store_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func feedKey(account string) string {
	merchantID, _ := session.ParseAccount(account)
	return merchantTag(merchantID) + "feed:" + account
}

// storedFeed returns what Redis holds of a feed.
func storedFeed(t testing.TB, c *goredis.Client, account string) (events []feed.Event) {
	t.Helper()
	entries, err := c.XRange(t.Context(), feedKey(account), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		event, err := feed.Parse(account, entry.Values["e"].(string))
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
	return events
}

// Each end and each refused payment is there once, in order, no matter who made it; nothing of a creation.
func TestFeed_Appends(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchantIn(7)
	create := func(change ...func(*store.NewSession)) session.Session {
		request := with(newSession(), func(n *store.NewSession) { n.EmitCreated = true })
		for _, c := range change {
			c(&request)
		}
		return mustCreate(t, s, asks, request).Session
	}
	overdue := func() session.ID {
		created := create(short)
		due(t, s, created)
		return created.ID
	}
	settle := func(id session.ID, payment session.Payment) { must(t, second(s.Settle(t.Context(), id, payment))) }
	completed, expired := v1alpha1.EventSessionCompleted, v1alpha1.EventSessionExpired
	for _, row := range []struct {
		name string
		do   func()
		want []v1alpha1.WebhookEvent
	}{
		{"created", func() { create() }, nil},
		{"completed", func() { settle(create().ID, paid("a")) }, []v1alpha1.WebhookEvent{completed}},
		{"reported twice", func() { id := create().ID; settle(id, paid("a")); settle(id, paid("a")) }, []v1alpha1.WebhookEvent{completed}},
		{"failed", func() { settle(create().ID, failed("a")) }, []v1alpha1.WebhookEvent{v1alpha1.EventSessionFailed}},
		{"cancelled", func() { _, _, err := s.Cancel(t.Context(), asks, create().ID); must(t, err) }, []v1alpha1.WebhookEvent{v1alpha1.EventSessionCancelled}},
		{"mismatch", func() { settle(create().ID, of(7, paid("a"))) }, []v1alpha1.WebhookEvent{v1alpha1.EventPaymentMismatch}},
		{"late", func() { settle(overdue(), paid("a")) }, []v1alpha1.WebhookEvent{expired, v1alpha1.EventLatePayment}},
		{"read", func() { _, _, err := s.Session(t.Context(), asks, overdue()); must(t, err) }, []v1alpha1.WebhookEvent{expired}},
		{"read publicly", func() { _, _, err := s.PublicSession(t.Context(), payer(), overdue()); must(t, err) }, []v1alpha1.WebhookEvent{expired}},
		{"watched", func() { must(t, second(s.WatchedSession(t.Context(), overdue()))) }, []v1alpha1.WebhookEvent{expired}},
		{"swept", func() { overdue(); sweepAll(t, s, 7, 10) }, []v1alpha1.WebhookEvent{expired}},
		{"merchant deleted", func() { must(t, second(s.SettleDeleted(t.Context(), create().ID, paid("a")))) }, nil},
		{"rotated", func() {
			must(t, second(s.RecordRotation(t.Context(), newRotation(asks, 2), rotatedAt, feed.History{})))
			must(t, second(s.RecordRotation(t.Context(), newRotation(asks, 2), rotatedAt, feed.History{})))
		}, []v1alpha1.WebhookEvent{v1alpha1.EventKeyRotated}},
	} {
		t.Run(row.name, func(t *testing.T) {
			must(t, c.Del(t.Context(), feedKey(asks.MerchantID)).Err())
			row.do()
			if got := eventKinds(storedFeed(t, c, asks.MerchantID)); !slices.Equal(got, row.want) {
				t.Errorf("the feed has %v, want %v", got, row.want)
			}
			if n := c.Exists(t.Context(), feedKey(asks.MerchantID)).Val(); n > 0 != (row.want != nil) {
				t.Errorf("%d feeds", n)
			}
		})
	}
}

// The two modes of a merchant are apart.
func TestFeed_TestMode(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	asks := merchant()
	test := with(asks, inTestMode)
	id := mustCreate(t, s, test, newSession()).Session.ID
	must(t, second(s.SettleTest(t.Context(), id, paid("a"))))
	if live, tests := storedFeed(t, c, asks.MerchantID), storedFeed(t, c, id.Account()); len(live) != 0 || len(tests) != 1 || !tests[0].TestMode {
		t.Errorf("live %v, test %v", eventKinds(live), eventKinds(tests))
	}
}

func TestFeed_IsKeptForItsHistory(t *testing.T) {
	s, c := storetest.OpenWith(t, shared.URL(), store.Options{History: feed.History{Age: 24 * time.Hour, Entries: 1000}}), client(t, shared)
	asks := merchant()
	key := feedKey(asks.MerchantID)
	yesterday := time.Now().Add(-25 * time.Hour).UnixMilli()
	for i := range 500 {
		must(t, c.XAdd(t.Context(), &goredis.XAddArgs{Stream: key, ID: feed.EntryID{Millis: uint64(yesterday), Seq: uint64(i)}.String(), Values: []any{"e", strings.Repeat("old", 50)}}).Err())
	}
	end := func() {
		must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, paid("a"))))
	}
	end()
	if n := c.XLen(t.Context(), key).Val(); n > 100 {
		t.Errorf("%d entries, want the old ones dropped by block", n)
	}
	if left := c.PTTL(t.Context(), key).Val(); left <= 23*time.Hour || left > 24*time.Hour {
		t.Errorf("kept for %s", left)
	}
	for range 1500 {
		must(t, c.XAdd(t.Context(), &goredis.XAddArgs{Stream: key, Values: []any{"e", strings.Repeat("new", 50)}}).Err())
	}
	for c.XLen(t.Context(), key).Val() > 1100 { // one end in 16 drops what is too much
		end()
	}
}

// A server that rejects any of the writes of an end has none of them.
func TestFeed_AllOrNothing(t *testing.T) {
	server := redistest.Start(t)
	s, c := open(t, server.URL()), client(t, server)
	asks := merchant()
	id := mustCreate(t, s, asks, newSession()).Session.ID
	harm := map[string]string{
		"the feed":  feedKey(asks.MerchantID),
		"the event": merchantTag(asks.MerchantID) + "event:" + feed.SessionEventID(id, feed.MarkEnded),
		"the queue": merchantTag(asks.MerchantID) + "queue",
		"its index": merchantTag(asks.MerchantID) + "due",
	}
	for name, key := range harm {
		t.Run(name, func(t *testing.T) {
			must(t, c.Del(t.Context(), key).Err())
			must(t, c.Set(t.Context(), key, "text", 0).Err())
			if _, err := s.Settle(t.Context(), id, paid("a")); !errors.Is(err, redis.ErrCorrupt) {
				t.Errorf("settle: %v, want ErrCorrupt", err)
			}
			must(t, c.Del(t.Context(), key).Err())
			if events := storedFeed(t, c, asks.MerchantID); len(events) != 0 {
				t.Errorf("the feed has %v", eventKinds(events))
			}
			if _, read, err := s.Session(t.Context(), asks, id); err != nil || read.Status != session.Pending {
				t.Errorf("it is %s: %v", read.Status, err)
			}
		})
	}
	for _, right := range []string{"xadd", "hset", "zadd", "pexpire"} {
		t.Run("without the right "+right, func(t *testing.T) {
			must(t, c.Do(t.Context(), "ACL", "SETUSER", "default", "-"+right).Err())
			_, err := s.Settle(t.Context(), id, paid("a"))
			must(t, c.Do(t.Context(), "ACL", "SETUSER", "default", "+"+right).Err())
			if !errors.Is(err, redis.ErrUnavailable) {
				t.Errorf("settle: %v, want ErrUnavailable", err)
			}
			if events := storedFeed(t, c, asks.MerchantID); len(events) != 0 {
				t.Errorf("the feed has %v", eventKinds(events))
			}
		})
	}
	must(t, second(s.Settle(t.Context(), id, paid("a"))))
	if events := storedFeed(t, c, asks.MerchantID); len(events) != 1 {
		t.Errorf("afterwards the feed has %v", eventKinds(events))
	}
}

// followFeed reads all that a cursor has not seen, in pages of two.
func followFeed(t testing.TB, s *services, asks admission.Request, cursor feed.Cursor) (ids []string, last feed.Cursor) {
	t.Helper()
	for {
		_, page, err := s.Feed(t.Context(), asks, cursor, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.Entries {
			ids = append(ids, entry.Event.ID)
		}
		if cursor = page.Cursor; !cursor.HeadAt.IsZero() {
			return ids, cursor
		}
	}
}

// However many end sessions at once and however often each of several consumers reads, on all replicas: every consumer sees every end once,
// all in the same order, and each end that was answered before a read is in it.
func TestFeed_IsLinearizable(t *testing.T) {
	server := redistest.Start(t)
	replicas := []*services{open(t, server.URL()), open(t, server.URL())}
	asks := merchantIn(7)
	const writers, each, consumers = 6, 40, 3
	var (
		mu       sync.Mutex
		answered []string // in the order of the answers
		writing  sync.WaitGroup
		reading  sync.WaitGroup
	)
	done := make(chan struct{})
	for writer := range writers {
		writing.Go(func() {
			for n := range each {
				s := replicas[(writer+n)%2]
				id := mustCreate(t, s, asks, newSession()).Session.ID
				var err error
				if n%2 == 0 {
					_, _, err = s.Cancel(t.Context(), asks, id)
				} else {
					_, err = s.Settle(t.Context(), id, paid("a"))
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				answered = append(answered, feed.SessionEventID(id, feed.MarkEnded))
				mu.Unlock()
			}
		})
	}
	seen := make([][]string, consumers)
	for consumer := range consumers {
		reading.Go(func() {
			var cursor feed.Cursor
			for over := false; !over; {
				select {
				case <-done:
					over = true
				default:
				}
				mu.Lock()
				before := slices.Clone(answered)
				mu.Unlock()
				var ids []string
				ids, cursor = followFeed(t, replicas[consumer%2], asks, cursor)
				seen[consumer] = append(seen[consumer], ids...)
				known := map[string]bool{}
				for _, id := range seen[consumer] {
					known[id] = true
				}
				for _, id := range before {
					if !known[id] {
						t.Errorf("consumer %d: %s was answered before the read, and is not in it", consumer, id)
						return
					}
				}
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	if len(answered) != writers*each {
		t.Fatalf("%d answers", len(answered))
	}
	slices.Sort(answered)
	for consumer := range consumers {
		if !slices.Equal(seen[consumer], seen[0]) {
			t.Errorf("consumers 0 and %d saw another order", consumer)
		}
		if got := slices.Sorted(slices.Values(seen[consumer])); !slices.Equal(got, answered) {
			t.Errorf("consumer %d saw %d events, want %d, each once", consumer, len(got), len(answered))
		}
	}
}

// What cannot be read is passed over; what a newer version wrote is waited for.
func TestFeed_UnreadableEntries(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	asks := merchant()
	end := func() {
		must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, paid("a"))))
	}
	add := func(text string) {
		must(t, c.XAdd(t.Context(), &goredis.XAddArgs{Stream: feedKey(asks.MerchantID), Values: []any{"e", text}}).Err())
	}
	end()
	add("garbage")
	end()
	_, page, err := s.Feed(t.Context(), asks, feed.Cursor{}, 10)
	if err != nil || len(page.Entries) != 2 || page.Corrupt != 1 || page.Cursor.HeadAt.IsZero() {
		t.Fatalf("%+v, %v", page, err)
	}
	add("2\tsession.completed\t1795253496000\tof another form")
	end()
	_, page, err = s.Feed(t.Context(), asks, feed.Cursor{}, 10)
	if err != nil || len(page.Entries) != 2 || !page.Cursor.HeadAt.IsZero() {
		t.Fatalf("%+v, %v", page, err)
	}
	if _, page, err = s.Feed(t.Context(), asks, page.Cursor, 10); !errors.Is(err, feed.ErrUnsupported) {
		t.Errorf("%+v, %v; want ErrUnsupported", page, err)
	}
}

// Each twenty events of a page are charged as a request, and a page is no longer than there is room
// for: a merchant that is at its limit all the time reads no long ones.
func TestFeed_Charged(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	asks := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: 25})
	must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, paid("a"))))
	stream, rate := feedKey(asks.MerchantID), merchantTag(asks.MerchantID)+"rate:"+asks.MerchantID
	repeatEvent(t, c, stream, c.XRange(t.Context(), stream, "-", "+").Val()[0].Values, 1000)
	for name, test := range map[string]struct {
		room, limit  int // requests, events
		listed, cost int
	}{
		"an event":              {25, 1, 1, 1},
		"the most for one":      {25, 20, 20, 1},
		"one more":              {25, 21, 21, 2},
		"a page":                {25, 100, 100, 5},
		"the longest":           {25, 500, 500, 25},
		"just room for it":      {5, 100, 100, 5},
		"room for less":         {4, 500, 80, 4},
		"room for itself":       {1, 500, 20, 1},
		"a page that just fits": {1, 20, 20, 1},
	} {
		t.Run(name, func(t *testing.T) {
			used := time.Duration(25-test.room) * time.Second
			must(t, c.Set(t.Context(), rate, c.Time(t.Context()).Val().Add(used).UnixMicro(), 0).Err())
			admitted, page, err := s.Feed(t.Context(), asks, feed.Cursor{}, test.limit)
			must(t, err)
			// A request may find that a moment of what was used has passed.
			if cost := admitted.Quota.Reset - used; len(page.Entries) != test.listed || cost.Round(time.Second) != time.Duration(test.cost)*time.Second {
				t.Errorf("%d events for %s", len(page.Entries), cost)
			}
			if !page.Cursor.HeadAt.IsZero() {
				t.Error("as if there were no more")
			}
			stored, err := c.Get(t.Context(), rate).Int64()
			if want := admitted.Now.Add(admitted.Quota.Reset).UnixMicro(); err != nil || stored != want {
				t.Errorf("charged until %d, want %d: %v", stored, want, err)
			}
		})
	}
}

// A full feed drops events that a consumer has not read: it gets an error, and one that has read enough does not.
func TestFeed_Full(t *testing.T) {
	s, c := storetest.OpenWith(t, shared.URL(), store.Options{History: feed.History{Entries: 1000}}), client(t, shared)
	asks := merchant()
	end := func() {
		must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, paid("a"))))
	}
	end()
	_, first, err := s.Feed(t.Context(), asks, feed.Cursor{}, 10)
	must(t, err)
	stored := c.XRange(t.Context(), feedKey(asks.MerchantID), "-", "+").Val()[0].Values["e"]
	for range 1500 {
		must(t, c.XAdd(t.Context(), &goredis.XAddArgs{Stream: feedKey(asks.MerchantID), Values: []any{"e", stored}}).Err())
	}
	_, late, err := s.Feed(t.Context(), asks, feed.Cursor{}, 1500)
	must(t, err)
	for c.XLen(t.Context(), feedKey(asks.MerchantID)).Val() > 1100 {
		end()
	}
	if _, _, err := s.Feed(t.Context(), asks, first.Cursor, 10); !errors.Is(err, feed.ErrCursorExpired) {
		t.Errorf("of the first event: %v, want ErrCursorExpired", err)
	}
	if _, page, err := s.Feed(t.Context(), asks, late.Cursor, 10); err != nil || len(page.Entries) == 0 {
		t.Errorf("of a late one: %+v, %v", page, err)
	}
}

// The new master does not have the last writes of the old one. What the feed lost the sessions lost with it, and a consumer that had read it gets an error,
// also when the new master has written more since.
func TestFeed_FailoverThatLosesWrites(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	_, port, err := net.SplitHostPort(master.Addr())
	must(t, err)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	before, follower := open(t, master.URL()), client(t, replica)
	asks := merchant()
	var ids []session.ID
	for range 4 {
		ids = append(ids, mustCreate(t, before, asks, newSession()).Session.ID)
	}
	pay := func(s *services, id session.ID, payment session.Payment) {
		must(t, second(s.Settle(t.Context(), id, payment)))
	}
	pay(before, ids[0], paid("a"))
	eventually(t, "the replica has the first payment", func() bool { return follower.XLen(t.Context(), feedKey(asks.MerchantID)).Val() == 1 })
	kept, atFirst := followFeed(t, before, asks, feed.Cursor{})
	must(t, follower.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	pay(before, ids[1], paid("a"))
	pay(before, ids[2], paid("a"))
	_, atLast := followFeed(t, before, asks, atFirst)

	s := open(t, replica.URL())
	for n, id := range ids {
		_, read, err := s.Session(t.Context(), asks, id)
		if inFeed := n == 0; err != nil || read.Status.Final() != inFeed {
			t.Errorf("session %d is %s: %v; in the feed: %t", n, read.Status, err, inFeed)
		}
	}
	if ids, _ := followFeed(t, s, asks, atFirst); len(ids) != 0 {
		t.Errorf("a consumer that read what survived gets %v", ids)
	}
	for range 2 { // at once, and once more was written
		_, _, err = s.Feed(t.Context(), asks, atLast, 10)
		lost, ok := errors.AsType[feed.LostError](err)
		if !ok {
			t.Fatalf("%v, want a LostError", err)
		}
		if lost.Survivor.Entry != atFirst.Entry {
			t.Errorf("the survivor is %s, want %s", lost.Survivor.Entry, atFirst.Entry)
		}
		pay(s, ids[3], paid("a"))
	}
	pay(s, ids[1], failed("b"))
	got, _ := followFeed(t, s, asks, atFirst)
	want := []string{feed.SessionEventID(ids[3], feed.MarkEnded), feed.SessionEventID(ids[1], feed.MarkEnded)}
	if !slices.Equal(got, want) {
		t.Errorf("from the survivor on: %v, want %v", got, want)
	}
	if got, _ := followFeed(t, s, asks, feed.Cursor{}); !slices.Equal(got, append(kept, want...)) {
		t.Errorf("from the beginning: %v", got)
	}
}

// A new master whose clock is behind gives ids again that the old one gave to what is lost: the consumer gets an error, and then what came instead.
func TestFeed_FailoverToAClockBehind(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	asks := merchant()
	key := feedKey(asks.MerchantID)
	end := func() string {
		id := mustCreate(t, s, asks, newSession()).Session.ID
		must(t, second(s.Settle(t.Context(), id, paid("a"))))
		return feed.SessionEventID(id, feed.MarkEnded)
	}
	end()
	event := c.XRange(t.Context(), key, "-", "+").Val()[0].Values["e"]
	ahead := feed.EntryID{Millis: uint64(time.Now().Add(time.Hour).UnixMilli())}
	must(t, c.XAdd(t.Context(), &goredis.XAddArgs{Stream: key, ID: ahead.String(), Values: []any{"e", event}}).Err())
	survives := c.Dump(t.Context(), key).Val()
	end()
	end()
	_, last, err := s.Feed(t.Context(), asks, feed.Cursor{}, 10)
	must(t, err)
	must(t, c.RestoreReplace(t.Context(), key, time.Hour, survives).Err())
	want := []string{end(), end(), end()}
	_, page, err := s.Feed(t.Context(), asks, last.Cursor, 10)
	lost, ok := errors.AsType[feed.LostError](err)
	if !ok {
		t.Fatalf("%d events and %v, want a LostError", len(page.Entries), err)
	}
	got, _ := followFeed(t, s, asks, lost.Survivor)
	if got = got[len(got)-len(want):]; !slices.Equal(got, want) {
		t.Errorf("from the survivor on: %v, want them to end with %v", got, want)
	}
}
