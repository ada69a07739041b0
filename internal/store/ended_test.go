package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// endEach ends a session in each way, and returns them in the order of their ends.
func endEach(t *testing.T, s *services, asks admission.Request) (ended []session.Session) {
	t.Helper()
	for _, end := range []func(session.ID){
		func(id session.ID) { must(t, second(s.Settle(t.Context(), id, paid("a")))) },
		func(id session.ID) { must(t, second(s.Settle(t.Context(), id, failed("a")))) },
		func(id session.ID) { _, _, err := s.Cancel(t.Context(), asks, id); must(t, err) },
		nil,
	} {
		created := mustCreate(t, s, asks, newSession()).Session
		if end != nil {
			end(created.ID)
		} else {
			created = mustCreate(t, s, asks, with(newSession(), short)).Session
			due(t, s, created)
		}
		_, read, err := s.Session(t.Context(), asks, created.ID)
		must(t, err)
		ended = append(ended, read)
	}
	return ended
}

// TestEnded: the list has each session as it is read, on whatever server.
func TestEnded(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"one server": shared.URL(), "cluster": "redis+cluster://" + startCluster(t)[0].Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, asks := open(t, url), merchant()
			want := endEach(t, s, asks)
			must(t, second(s.Settle(t.Context(), want[0].ID, of(7, paid("b"))))) // a refused payment is no end
			mustCreate(t, s, asks, newSession())
			slices.Reverse(want)
			admitted, page, err := s.Ended(t.Context(), asks, store.EndedQuery{Limit: 10})
			must(t, err)
			var got []session.Session
			for _, one := range page.Sessions {
				got = append(got, one.Session)
				if late := one.Entry.RecordedAt().Sub(one.EndedAt); late < 0 || late > patience {
					t.Errorf("%s ended %s after its end was recorded", one.ID, -late)
				}
			}
			if diff := cmp.Diff(want, got, sameSession); diff != "" || admitted.Now.IsZero() || page.Next != (feed.EntryID{}) {
				t.Errorf("%+v, next %v (-want +got):\n%s", admitted, page.Next, diff)
			}
			again, err := s.ReadEnded(t.Context(), newAccount(asks), store.EndedQuery{Limit: 10})
			if err != nil || !cmp.Equal(page.Sessions, again.Sessions, sameSession) {
				t.Errorf("without a key: %+v, %v", again, err)
			}
			second := page.Sessions[1].Entry.RecordedAt()
			for _, one := range page.Sessions { // [from, to)
				in := !one.Entry.RecordedAt().Before(second) && one.Entry.RecordedAt().Before(second.Add(time.Millisecond))
				within, err := s.ReadEnded(t.Context(), newAccount(asks), store.EndedQuery{From: second, To: second.Add(time.Millisecond), Limit: 10})
				must(t, err)
				if slices.ContainsFunc(within.Sessions, func(e store.EndedSession) bool { return e.ID == one.ID }) != in {
					t.Errorf("of %s and a millisecond: %+v; recorded at %s", second, within.Sessions, one.Entry.RecordedAt())
				}
			}
		})
	}
}

func TestEnded_Errors(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	dead := with(merchant(), func(a *admission.Request) { a.Accepted = false })
	if _, page, err := s.Ended(t.Context(), dead, store.EndedQuery{Limit: 1}); !errors.Is(err, admission.ErrKeyRejected) || page.Sessions != nil {
		t.Errorf("with a dead key: %+v, %v", page, err)
	}
	// A list that leaves out what it cannot read is a wrong sum.
	for event, want := range map[string]error{
		"1\tsession.completed\t1\twhat is this": redis.ErrCorrupt, "9\tsession.completed\t1\tof a newer program": redis.ErrUnavailable,
	} {
		asks := merchant()
		must(t, c.XAdd(t.Context(), &goredis.XAddArgs{Stream: merchantTag(asks.MerchantID) + "feed:" + asks.MerchantID, Values: []string{"e", event}}).Err())
		if _, err := s.ReadEnded(t.Context(), newAccount(asks), store.EndedQuery{Limit: 1}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", event, err, want)
		}
	}
}

// One script looks at a thousand entries at most, so a page may have nothing and yet another one behind it.
func TestEnded_Many(t *testing.T) {
	server := redistest.Start(t)
	s, asks, c := storetest.OpenWith(t, server.URL(), store.Options{History: feed.History{Entries: 2000}}), merchant(), client(t, server)
	ended := endEach(t, s, asks)
	stream := merchantTag(asks.MerchantID) + "feed:" + asks.MerchantID
	entries := c.XRange(t.Context(), stream, "-", "+").Val()
	repeatEvent(t, c, stream, entries[2].Values, 2500) // cancelled

	page, err := s.ReadEnded(t.Context(), newAccount(asks), store.EndedQuery{Status: session.Completed, Limit: 10})
	if err != nil || len(page.Sessions) != 0 || page.Next == (feed.EntryID{}) {
		t.Errorf("the first page: %d sessions, next %v, %v", len(page.Sessions), page.Next, err)
	}
	if oldest, _ := feed.ParseEntryID(entries[0].ID); page.Since.UnixMilli() != oldest.RecordedAt().UnixMilli()+1 {
		t.Errorf("a feed that is full is whole since %s, its oldest entry is of %s", page.Since, oldest.RecordedAt())
	}
	count := map[session.Status]int{}
	for _, one := range readEnded(t, s, asks, store.EndedQuery{}) {
		count[one.Status]++
	}
	want := map[session.Status]int{session.Completed: 1, session.Failed: 1, session.Expired: 1, session.Cancelled: 2501}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if completed := readEnded(t, s, asks, store.EndedQuery{Status: session.Completed}); len(completed) != 1 || completed[0].ID != ended[0].ID {
		t.Errorf("behind 2500 others %+v is listed as completed, want %s", completed, ended[0].ID)
	}
}

// repeatEvent appends an event to a feed many times.
func repeatEvent(t *testing.T, c *goredis.Client, stream string, event map[string]any, times int) {
	t.Helper()
	batch := c.Pipeline()
	for range times {
		batch.XAdd(t.Context(), &goredis.XAddArgs{Stream: stream, Values: event})
	}
	_, err := batch.Exec(t.Context())
	must(t, err)
}

// readEnded reads all pages.
func readEnded(t *testing.T, s *services, asks admission.Request, query store.EndedQuery) (all []store.EndedSession) {
	t.Helper()
	query.Limit = store.MaxEnded
	for more := true; more; more = query.Before != (feed.EntryID{}) {
		page, err := s.ReadEnded(t.Context(), newAccount(asks), query)
		must(t, err)
		all, query.Before = append(all, page.Sessions...), page.Next
	}
	return all
}

// Each twenty entries that a page goes through are charged as a request, and no more than there is room for are examined.
func TestEnded_Charged(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	for name, test := range map[string]struct {
		burst  int64
		query  store.EndedQuery
		listed int
		// cost is how many requests, and examined how many entries.
		cost, examined int
	}{
		"one session":                  {100, store.EndedQuery{Limit: 1}, 1, 1, 1},
		"a page":                       {100, store.EndedQuery{Limit: 100}, 100, 5, 100},
		"a large page":                 {100, store.EndedQuery{Limit: 200}, 200, 10, 200},
		"a page, and room for three":   {3, store.EndedQuery{Limit: 100}, 60, 3, 60},
		"nothing in a thousand":        {100, store.EndedQuery{Status: session.Completed, Limit: 100}, 0, 50, 1000},
		"nothing, and room for three":  {3, store.EndedQuery{Status: session.Completed, Limit: 100}, 0, 3, 60},
		"nothing, and room for itself": {1, store.EndedQuery{Status: session.Completed, Limit: 100}, 0, 1, 20},
	} {
		t.Run(name, func(t *testing.T) {
			asks := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: test.burst})
			id := mustCreate(t, s, with(asks, func(a *admission.Request) { a.Limit = merchant().Limit }), newSession()).Session.ID
			must(t, second(s.Settle(t.Context(), id, failed("a"))))
			tag := merchantTag(asks.MerchantID)
			stream := tag + "feed:" + asks.MerchantID
			repeatEvent(t, c, stream, c.XRange(t.Context(), stream, "-", "+").Val()[0].Values, 1500)
			must(t, c.Del(t.Context(), tag+"rate:"+asks.MerchantID).Err())

			admitted, page, err := s.Ended(t.Context(), asks, test.query)
			must(t, err)
			if cost := admitted.Quota.Reset; len(page.Sessions) != test.listed || cost != time.Duration(test.cost)*time.Second {
				t.Errorf("%d sessions for %s", len(page.Sessions), cost)
			}
			entries := c.XRevRangeN(t.Context(), stream, "+", "-", int64(test.examined)).Val()
			if last := entries[len(entries)-1].ID; page.Next.String() != last {
				t.Errorf("the next page begins at %s, want %s", page.Next, last)
			}
			stored, err := c.Get(t.Context(), tag+"rate:"+asks.MerchantID).Int64()
			if want := admitted.Now.Add(admitted.Quota.Reset).UnixMicro(); err != nil || stored != want {
				t.Errorf("charged until %d, want %d: %v", stored, want, err)
			}
		})
	}
}

// However many entries are kept, Redis does not go through those outside of the range.
func TestEnded_OutsideOfTheRange(t *testing.T) {
	server := redistest.Start(t)
	s, asks, c := open(t, server.URL()), busyMerchant(), client(t, server)
	endEach(t, s, asks)
	stream := merchantTag(asks.MerchantID) + "feed:" + asks.MerchantID
	entries := c.XRange(t.Context(), stream, "-", "+").Val()
	repeatEvent(t, c, stream, entries[2].Values, 50_000)
	oldest, _ := feed.ParseEntryID(entries[0].ID)
	first := oldest.RecordedAt()
	for name, query := range map[string]store.EndedQuery{
		"before all":             {To: first},
		"before what is kept":    {From: time.UnixMilli(1), To: time.UnixMilli(2)},
		"after all":              {From: time.Now().Add(time.Hour)},
		"behind the last page":   {Before: oldest},
		"behind another cursor":  {Before: feed.EntryID{Millis: 1}},
		"behind a period's page": {From: first.Add(-time.Hour), Before: oldest},
	} {
		t.Run(name, func(t *testing.T) {
			query.Limit = 100
			wantQuick(t, c, func() {
				_, page, err := s.Ended(t.Context(), asks, query)
				if must(t, err); len(page.Sessions) != 0 || page.Next != (feed.EntryID{}) {
					t.Fatalf("%d sessions, next %v", len(page.Sessions), page.Next)
				}
			})
		})
	}
	for name, test := range map[string]struct {
		after  feed.Cursor
		listed int
		want   error
	}{
		"from the beginning": {feed.Cursor{}, 1, nil},
		"an old cursor":      {feed.Cursor{Entry: feed.EntryID{Millis: 1}}, 0, feed.ErrCursorExpired},
	} {
		t.Run("feed/"+name, func(t *testing.T) {
			wantQuick(t, c, func() {
				if _, page, err := s.Feed(t.Context(), asks, test.after, 1); len(page.Entries) != test.listed || !errors.Is(err, test.want) {
					t.Fatalf("%d events, %v", len(page.Entries), err)
				}
			})
		})
	}
}

// wantQuick has Redis work on a request for less than a millisecond, at least once in ten times: another process may have the processor.
func wantQuick(t *testing.T, c *goredis.Client, request func()) {
	t.Helper()
	request() // the server gets to know the script
	must(t, c.ConfigSet(t.Context(), "slowlog-log-slower-than", "0").Err())
	must(t, c.Do(t.Context(), "SLOWLOG", "RESET").Err())
	for range 10 {
		request()
	}
	least := time.Hour
	for _, logged := range c.SlowLogGet(t.Context(), 100).Val() {
		if logged.Args[0] == "evalsha" {
			least = min(least, logged.Duration)
		}
	}
	if least > time.Millisecond {
		t.Errorf("Redis works on a request for %s", least)
	}
}

// A shop finds a payment by the reference on the payer's receipt, and only its own payments.
func TestFindPaid(t *testing.T) {
	t.Parallel()
	s, asks := open(t, shared.URL()), merchant()
	ended := endEach(t, s, asks)
	test := with(asks, inTestMode)
	tested := mustCreate(t, s, test, newSession()).Session
	must(t, second(s.SettleTest(t.Context(), tested.ID, paid("a"))))
	for range 30 { // of the same seconds
		must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, paid("a"))))
	}
	reference, isPaid := ended[0].Reference()
	if !isPaid {
		t.Fatalf("%+v", ended[0])
	}
	for name, now := range map[string]time.Time{"now": time.Now(), "in a month": time.Now().AddDate(0, 1, 0), "by a clock that is behind": time.Now().Add(-time.Hour)} {
		t.Run(name, func(t *testing.T) {
			admitted, page, err := s.FindPaid(t.Context(), asks, reference, feed.EntryID{}, now)
			must(t, err)
			if len(page.Sessions) != 1 || !cmp.Equal(page.Sessions[0].Session, ended[0], sameSession) || admitted.Now.IsZero() || page.Next != (feed.EntryID{}) {
				t.Errorf("%+v, %+v", admitted, page)
			}
			found, since, err := s.ReadPaid(t.Context(), newAccount(asks), reference, now)
			if err != nil || !cmp.Equal(found, page.Sessions, sameSession) || since.After(ended[0].EndedAt) {
				t.Errorf("without a key: %+v since %s, %v", found, since, err)
			}
		})
	}
	for name, account := range map[string]store.Account{"another merchant": newAccount(merchant()), "test mode": newAccount(test)} {
		found, _, err := s.ReadPaid(t.Context(), account, reference, time.Now())
		if err != nil || len(found) > 0 {
			t.Errorf("%s finds %+v, %v", name, found, err)
		}
	}
	// Each read has room for two parts of the feed, of 20 entries each: it goes on as long as the limit has room for another read.
	for range 60 {
		must(t, second(s.Settle(t.Context(), mustCreate(t, s, asks, newSession()).Session.ID, paid("a"))))
	}
	for name, limit := range map[string]ratelimit.Policy{
		"a limit that has room again": {RequestsPerSecond: 1_000_000, Burst: 2}, "a limit that is used up": {RequestsPerSecond: 1, Burst: 2},
	} {
		caller := with(asks, func(a *admission.Request) { a.Limit = limit })
		must(t, storetest.Inspect(t, shared).Del(t.Context(), merchantTag(asks.MerchantID)+admission.RateKey+asks.Account()).Err()) // nothing of it is used
		_, page, err := s.FindPaid(t.Context(), caller, reference, feed.EntryID{}, time.Now())
		must(t, err)
		if usedUp := limit.RequestsPerSecond == 1; usedUp != (len(page.Sessions) == 0) || usedUp && page.Next == (feed.EntryID{}) {
			t.Errorf("%s: %+v", name, page)
		}
	}
	// A receipt that is older than the list says so.
	old := session.NewReference(ended[0].ID, time.Now().AddDate(0, 0, -8))
	found, since, err := s.ReadPaid(t.Context(), newAccount(asks), old, time.Now())
	if err != nil || len(found) > 0 || !since.After(old.PaidAt(time.Now())) {
		t.Errorf("of 8 days ago: %+v since %s, %v", found, since, err)
	}
}
