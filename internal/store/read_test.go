package store_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

func TestPublicSession(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	created := mustCreate(t, s, asks, newSession()).Session
	want := publicSession(created)
	_, public, err := s.PublicSession(t.Context(), payer(), created.ID)
	if err != nil {
		t.Fatal(err)
	}
	if public.ExpiresIn <= 14*time.Minute || public.ExpiresIn > 15*time.Minute {
		t.Errorf("a new session expires in %s, want nearly 15 minutes", public.ExpiresIn)
	}
	want.ExpiresIn = public.ExpiresIn
	if public != want {
		t.Errorf("public read: %+v, want %+v", public, want)
	}
	_, cancelled, err := s.Cancel(t.Context(), asks, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	want.Status, want.ExpiresIn, want.EndedAt = session.Cancelled, 0, cancelled.EndedAt
	if _, public, err := s.PublicSession(t.Context(), payer(), created.ID); err != nil || public != want {
		t.Errorf("after the end: %+v, %v, want %+v", public, err, want)
	}
}

func TestSession_NotFound(t *testing.T) {
	s := open(t, shared.URL())
	owner := merchant()
	neighbour := merchant() // in the same bucket, where the key alone would find the session
	for session.MerchantBucket(neighbour.MerchantID) != session.MerchantBucket(owner.MerchantID) {
		neighbour = merchant()
	}
	stranger := merchant()
	for session.MerchantBucket(stranger.MerchantID) == session.MerchantBucket(owner.MerchantID) {
		stranger = merchant()
	}
	own := mustCreate(t, s, owner, newSession()).Session.ID
	for desc, test := range map[string]struct {
		asks admission.Request
		id   session.ID
	}{
		"of a merchant in the same bucket": {neighbour, own},
		"of a merchant in another bucket":  {stranger, own},
		"never made":                       {owner, session.NewID(own.MerchantID(), false)},
		"never made, of another merchant":  {owner, session.NewID(stranger.MerchantID, false)},
		"no id at all":                     {owner, session.ID{}},
	} {
		admitted, read, err := s.Session(t.Context(), test.asks, test.id)
		if !errors.Is(err, store.ErrNotFound) || !cmp.Equal(read, session.Session{}, sameSession) {
			t.Errorf("%s: %+v, %v; want ErrNotFound", desc, read, err)
		}
		if admitted.Remaining != test.asks.Limit.Burst-1 && test.asks.MerchantID != owner.MerchantID {
			t.Errorf("%s: remaining %d: the request must be counted, and its quota returned", desc, admitted.Remaining)
		}
		if admitted.Now.IsZero() {
			t.Errorf("%s: no time is returned", desc)
		}
	}
	for desc, id := range map[string]session.ID{"never made": session.NewID("aaaaaaaaaaaa", false), "no id at all": {}} {
		asks := payer()
		quota, read, err := s.PublicSession(t.Context(), asks, id)
		if !errors.Is(err, store.ErrNotFound) || read != (store.PublicSession{}) || quota.Remaining != asks.Limit.Burst-1 {
			t.Errorf("publicly, %s: %+v, %+v, %v; want ErrNotFound and a quota", desc, quota, read, err)
		}
	}
}

func TestPublicSession_LimitedBeforeLookup(t *testing.T) {
	s := open(t, shared.URL())
	created := mustCreate(t, s, merchant(), newSession())
	for desc, id := range map[string]session.ID{
		"a session":               created.Session.ID,
		"one that does not exist": session.NewID(created.Session.ID.MerchantID(), false),
	} {
		asks := with(payer(), func(p *store.PublicAdmission) { p.Limit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 5} })
		passed := 0
		eventually(t, desc+" is over the limit", func() bool {
			quota, read, err := s.PublicSession(t.Context(), asks, id)
			if err == nil || errors.Is(err, store.ErrNotFound) {
				passed++
				return false
			}
			if !errors.Is(err, admission.ErrRateLimited) || read != (store.PublicSession{}) ||
				quota.Remaining != 0 || quota.RetryAfter <= 0 || quota.RetryAfter > time.Second {
				t.Fatalf("%s: %+v, %+v, %v; want ErrRateLimited", desc, quota, read, err)
			}
			return true
		})
		if passed < 5 {
			t.Errorf("%s: %d reads of a burst of 5 passed", desc, passed)
		}
	}
}

// Whichever request reads first: the session ended when it expired, and every later request sees the same.
func TestRead_ExpiresDueSession(t *testing.T) {
	s := open(t, shared.URL())
	for _, first := range []string{"merchant", "payer", "replay"} {
		t.Run(first, func(t *testing.T) {
			asks := merchant()
			request := with(newSession(), func(n *store.NewSession) {
				n.Lifetime, n.Idempotency = 25*time.Millisecond, idempotencyKey(t, "order-1001")
			})
			want := mustCreate(t, s, asks, request).Session
			due(t, s, want)
			want.Status, want.EndedAt = session.Expired, want.ExpiresAt

			reads := map[string]func(){
				"merchant": func() {
					_, read, err := s.Session(t.Context(), asks, want.ID)
					if diff := cmp.Diff(want, read, sameSession); err != nil || diff != "" {
						t.Errorf("merchant's read: %v (-want +got):\n%s", err, diff)
					}
				},
				"payer": func() {
					_, read, err := s.PublicSession(t.Context(), payer(), want.ID)
					if err != nil || read.Status != session.Expired || !read.EndedAt.Equal(want.ExpiresAt) {
						t.Errorf("public read: %+v, %v", read, err)
					}
				},
				"replay": func() {
					again := mustCreate(t, s, asks, request)
					if diff := cmp.Diff(store.Created{Session: want, Replayed: true}, again, sameSession); diff != "" {
						t.Errorf("replay (-want +got):\n%s", diff)
					}
				},
			}
			reads[first]()
			// Written back, not only returned: the next program may read the hash itself.
			c := client(t, shared)
			key := merchantTag(asks.MerchantID) + "session:" + want.ID.String()
			if status := c.HGet(t.Context(), key, "s").Val(); status != "EXPIRED" {
				t.Errorf("Redis holds %s", status)
			}
			// The record outlives its expiry.
			if left := c.PTTL(t.Context(), key).Val(); left < 71*time.Hour {
				t.Errorf("the session is kept for another %s only", left)
			}
			for _, read := range reads {
				read()
			}
			// One event, however many read it, at the time of its expiry.
			wantEvent := feed.Event{
				ID: feed.SessionEventID(want.ID, feed.MarkEnded), Kind: v1alpha1.EventSessionExpired, OccurredAt: want.ExpiresAt,
				MerchantID: asks.MerchantID, MerchantName: want.MerchantName, Session: &feed.SessionChange{Session: want, Sequence: 1},
			}
			if diff := cmp.Diff([]feed.Event{wantEvent}, sessionEvents(t, c, want.ID), sameSession); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// A session with many refused payments and refunds costs its merchant as much as it costs Redis, and is read all the same.
func TestRead_Charged(t *testing.T) {
	s, c := open(t, shared.URL()), client(t, shared)
	for name, test := range map[string]struct {
		refused int
		burst   int64
		cost    int // requests
	}{
		"no refused payment": {0, 10, 1},
		"five":               {5, 10, 1},
		"a hundred":          {100, 10, 6},
		"a hundred, and room for three, and a second":    {100, 3, 4},
		"a hundred, and room for this one, and a second": {100, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			asks := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: test.burst})
			id := mustCreate(t, s, asks, newSession()).Session.ID
			for i := range 1 + test.refused {
				must(t, second(s.Settle(t.Context(), id, by(rail, paid(strconv.Itoa(i))))))
			}
			must(t, c.Del(t.Context(), merchantTag(asks.MerchantID)+"rate:"+asks.MerchantID).Err())
			admitted, story, err := s.Story(t.Context(), asks, id)
			must(t, err)
			if cost := admitted.Quota.Reset; len(story.Refused) != test.refused || cost != time.Duration(test.cost)*time.Second {
				t.Errorf("%d refused payments for %s", len(story.Refused), cost)
			}
		})
	}
}

func TestRead_PendingUntilExpiry(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	request := with(newSession(), func(n *store.NewSession) { n.Lifetime = 40 * time.Millisecond })
	id := mustCreate(t, s, asks, request).Session.ID
	eventually(t, "the session expires", func() bool {
		admitted, read, err := s.Session(t.Context(), asks, id)
		if err != nil {
			t.Fatal(err)
		}
		// The very same script read the clock and the session, so this is exact.
		if expired := !admitted.Now.Before(read.ExpiresAt); expired != (read.Status == session.Expired) {
			t.Fatalf("%s at %s, expires at %s", read.Status, admitted.Now, read.ExpiresAt)
		}
		return read.Status == session.Expired
	})
}

func TestRead_FinalStatusDoesNotExpire(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	for _, status := range []session.Status{session.Completed, session.Failed, session.Cancelled} {
		asks := merchant()
		created := mustCreate(t, s, asks, with(newSession(), func(n *store.NewSession) { n.Lifetime = 10 * time.Millisecond })).Session
		ended := created.CreatedAt.Add(3 * time.Millisecond)
		key := merchantTag(asks.MerchantID) + "session:" + created.ID.String()
		if err := c.HSet(t.Context(), key, "s", string(status), "e", ended.UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
		due(t, s, created)
		_, read, err := s.Session(t.Context(), asks, created.ID)
		if err != nil || read.Status != status || !read.EndedAt.Equal(ended) {
			t.Errorf("%s: read as %s, ended at %s: %v", status, read.Status, read.EndedAt, err)
		}
		_, public, err := s.PublicSession(t.Context(), payer(), created.ID)
		if err != nil || public.Status != status {
			t.Errorf("%s: publicly read as %s: %v", status, public.Status, err)
		}
	}
}

// A session is unreadable for one reason alone: its record is whole but for one text.
func TestSession_Unreadable(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	const account, amount, lifetime, tax, tip, name = 0, 1, 2, 5, 6, 8
	record := func(place int, text string) func(string) string {
		return func(stored string) string {
			texts := strings.Split(stored, "\t")
			texts[place] = text
			return strings.Join(texts, "\t")
		}
	}
	value := func(text string) func(string) string { return func(string) string { return text } }
	for desc, harm := range map[string]struct {
		field  string
		change func(string) string
	}{
		"an unknown status":              {"s", value("PAID")},
		"an empty status":                {"s", value("")},
		"no account":                     {"f", record(account, "")},
		"the account of another":         {"f", record(account, "abcdefgh2345")},
		"no amount":                      {"f", record(amount, "")},
		"an amount that is no number":    {"f", record(amount, "12.5")},
		"an amount below zero":           {"f", record(amount, "-1")},
		"no expiry":                      {"x", value("")},
		"an expiry that is no number":    {"x", value("soon")},
		"no lifetime":                    {"f", record(lifetime, "")},
		"a lifetime of zero":             {"f", record(lifetime, "0")},
		"a lifetime that is no number":   {"f", record(lifetime, "x")},
		"a tax that is no number":        {"f", record(tax, "x")},
		"a tip that is no number":        {"f", record(tip, "x")},
		"a record without the name":      {"f", func(stored string) string { return strings.Join(strings.Split(stored, "\t")[:name], "\t") }},
		"nothing behind the merchant":    {"f", func(stored string) string { return strings.Split(stored, "\t")[account] }},
		"an end although it is pending":  {"e", value("1")},
		"a final status without its end": {"s", value("COMPLETED")},
	} {
		asks := merchant()
		request := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
		id := mustCreate(t, s, asks, request).Session.ID
		key := merchantTag(asks.MerchantID) + "session:" + id.String()
		if text := harm.change(c.HGet(t.Context(), key, harm.field).Val()); text == "" && harm.field == "x" {
			c.HDel(t.Context(), key, "x")
		} else {
			c.HSet(t.Context(), key, harm.field, text)
		}
		_, read, err := s.Session(t.Context(), asks, id)
		if !errors.Is(err, redis.ErrCorrupt) || !cmp.Equal(read, session.Session{}, sameSession) {
			t.Errorf("%s: read: %+v, %v; want ErrCorrupt", desc, read, err)
		}
		if _, again, err := s.CreateSession(t.Context(), asks, request); !errors.Is(err, redis.ErrCorrupt) || again.Replayed {
			t.Errorf("%s: replay: %v; want ErrCorrupt", desc, err)
		}
	}
}
