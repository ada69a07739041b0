package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func (s fixture) deadLetters(t *testing.T, filter outbox.DeadLetterFilter) []outbox.DeadLetter {
	t.Helper()
	letters, err := s.DeadLetters(t.Context(), filter)
	must(t, err)
	return letters
}

func TestDeadLetters_NewestFirst(t *testing.T) {
	s := newFixture(t)
	other := s
	other.asks = storetest.MerchantIn(s.bucket())
	far := s
	far.asks = storetest.MerchantIn((s.bucket() + 1) % session.Buckets)
	far.tag = storetest.Tag(far.asks.MerchantID)

	var mine []string
	for i := range 3 {
		id := s.deadLetter(t, "endpoint_disabled")
		at := goredis.Z{Score: float64(time.Now().Add(time.Duration(i) * time.Minute).UnixMilli()), Member: id}
		for _, key := range []string{"dead", "dead:" + s.asks.MerchantID} {
			must(t, s.redis.ZAdd(t.Context(), s.tag+key, at).Err())
		}
		mine = append([]string{id}, mine...)
	}
	neighbours, farther := other.deadLetter(t, "timeout"), far.deadLetter(t, "dns")

	if got := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID})); !slices.Equal(got, mine) {
		t.Errorf("of the merchant: %v, want %v", got, mine)
	}
	if got := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID, Limit: 2})); !slices.Equal(got, mine[:2]) {
		t.Errorf("two of the merchant: %v, want %v", got, mine[:2])
	}
	all := s.deadLetters(t, outbox.DeadLetterFilter{})
	if got := deadLetterIDs(all); !sameSet(got, append([]string{neighbours, farther}, mine...)) {
		t.Errorf("of all: %v", got)
	}
	newest := all[0]
	if newest.Event.ID != mine[0] || newest.Reason != "endpoint_disabled" || newest.Attempts != 0 || newest.Event.Session == nil {
		t.Errorf("the newest is %+v", newest)
	}
	if got := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{Limit: 1})); !slices.Equal(got, mine[:1]) {
		t.Errorf("the newest of all: %v", got)
	}
}

// A form of the console shows one dead letter, and people look at it again and again. Redis reads no other event for that.
func TestDeadLetters_OneRead(t *testing.T) {
	s := newFixture(t)
	var ids []string
	for range 5 {
		ids = append(ids, s.deadLetter(t, "timeout"))
	}
	for name, filter := range map[string]outbox.DeadLetterFilter{"by id": {ID: ids[2]}, "the newest": {Limit: 1}} {
		filter.MerchantID = s.asks.MerchantID
		must(t, s.redis.ConfigResetStat(t.Context()).Err())
		letters := s.deadLetters(t, filter)
		if len(letters) != 1 || filter.ID != "" && letters[0].Event.ID != filter.ID {
			t.Errorf("%s: %v", name, deadLetterIDs(letters))
		}
		statistics, err := s.redis.Info(t.Context(), "commandstats").Result()
		must(t, err)
		if !strings.Contains(statistics, "cmdstat_hgetall:calls=1,") || !strings.Contains(statistics, "cmdstat_evalsha:calls=1,") {
			t.Errorf("%s: Redis read more than one event:\n%s", name, statistics)
		}
	}
	for _, id := range []string{"evt_unknown", s.deadLetter(t, "timeout") + "x"} {
		if letters := s.deadLetters(t, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID, ID: id}); len(letters) > 0 {
			t.Errorf("%s is found: %v", id, deadLetterIDs(letters))
		}
	}
}

func TestDeadLetters_MoreThanOnePage(t *testing.T) {
	s := newFixture(t)
	other := s
	other.asks = storetest.MerchantIn(s.bucket())
	var want []string
	for range 120 {
		want = append(want, s.event(t))
	}
	for range 120 {
		other.event(t)
	}
	for _, lease := range s.leaseFor(t, time.Hour, 1000) {
		must(t, s.DeadLetter(t.Context(), lease, outbox.Details{Reason: "timeout"}))
	}
	if got := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID})); !sameSet(got, want) {
		t.Errorf("%d dead letters, want %d", len(got), len(want))
	}
	if n := len(s.deadLetters(t, outbox.DeadLetterFilter{})); n != 240 {
		t.Errorf("%d dead letters in all, want 240", n)
	}
	if sent, err := s.Resend(t.Context(), outbox.ResendRequest{IDs: want}); err != nil || sent.Sent != 120 {
		t.Errorf("sent %+v again: %v", sent, err)
	}
}

func TestResend(t *testing.T) {
	s := newFixture(t)
	id := s.event(t)
	before := s.one(t)
	_, err := s.RecordFailure(t.Context(), before, outbox.Failure{Details: outbox.Details{Reason: "timeout"}, Retry: -1, Target: outbox.Target{ID: "here"}, FailingLimit: time.Hour})
	must(t, err)
	if letters := s.deadLetters(t, outbox.DeadLetterFilter{}); len(letters) != 1 || letters[0].Attempts != 1 || letters[0].Reason != "timeout" {
		t.Fatalf("dead letters: %+v", letters)
	}
	kept := s.deadLetter(t, "dns")

	sent, err := s.Resend(t.Context(), outbox.ResendRequest{IDs: []string{id, "evt_of_nobody", id}})
	if err != nil || sent.Sent != 1 {
		t.Errorf("sent %+v again: %v", sent, err)
	}
	again := s.one(t)
	if again.Event.ID != id || again.Attempts != 0 || again.Event.Session.Session != before.Event.Session.Session {
		t.Errorf("leased %+v after %d attempts, want what it was: %+v", again.Event, again.Attempts, before.Event)
	}
	if got := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{})); !slices.Equal(got, []string{kept}) {
		t.Errorf("dead letters left: %v", got)
	}
	checkStale(t, s, before)
}

func TestResend_DisabledEndpoint(t *testing.T) {
	s := newFixture(t)
	other := s
	other.asks = storetest.MerchantIn(s.bucket())
	s.fail(t, "here", func(f *outbox.Failure) { gone(f); f.Answer, f.Merchant = "410", "shops/acme" })
	s.deadLetter(t, "endpoint_disabled")
	mine := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{MerchantID: s.asks.MerchantID}))
	if named := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{Merchant: "shops/acme"})); len(mine) != 2 || len(named) != 1 {
		t.Errorf("%d of the merchant's id, %d of its name; want 2 and 1", len(mine), len(named))
	}
	resent, err := s.Resend(t.Context(), outbox.ResendRequest{IDs: append(mine, other.deadLetter(t, "dns"))})
	if err != nil || resent.Sent != 1 || len(resent.Disabled) != 1 {
		t.Fatalf("%+v, %v; want one sent and one endpoint", resent, err)
	}
	if e := resent.Disabled[0]; e.MerchantID != s.asks.MerchantID || e.Merchant != "shops/acme" || e.Events != 2 || e.Cause != outbox.EndpointGone || e.LastFailure.Answer != "410" {
		t.Errorf("the endpoint is %+v", e)
	}
	if resent, err := s.Resend(t.Context(), outbox.ResendRequest{IDs: mine, Resume: true}); err != nil || resent.Sent != 2 || len(resent.Disabled) != 0 {
		t.Errorf("resumed: %+v, %v", resent, err)
	}
}

func TestResend_OtherMerchants(t *testing.T) {
	s := newFixture(t)
	neighbour, far := s, s
	neighbour.asks = storetest.MerchantIn(s.bucket())
	far.asks = storetest.MerchantIn((s.bucket() + 1) % session.Buckets)
	far.tag = storetest.Tag(far.asks.MerchantID)
	mine, others := s.deadLetter(t, "dns"), []string{neighbour.deadLetter(t, "dns"), far.deadLetter(t, "dns")}
	request := outbox.ResendRequest{IDs: append(others, mine), MerchantID: s.asks.MerchantID, Resume: true}
	if resent, err := s.Resend(t.Context(), request); err != nil || resent.Sent != 1 || len(resent.Disabled) != 0 {
		t.Errorf("%+v, %v; want one", resent, err)
	}
	if got := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{})); !sameSet(got, others) {
		t.Errorf("left are %v, want those of others: %v", got, others)
	}
}

func TestDeadLetters_ExpiredOrLost(t *testing.T) {
	s := newFixture(t)
	old, vanished, odd, unreadable := s.deadLetter(t, "dns"), s.deadLetter(t, "dns"), s.deadLetter(t, "dns"), s.deadLetter(t, "dns")
	ctx := t.Context()
	long := float64(time.Now().Add(-30*24*time.Hour - time.Minute).UnixMilli())
	must(t, s.redis.ZAdd(ctx, s.tag+"dead", goredis.Z{Score: long, Member: old}).Err())
	must(t, s.redis.Del(ctx, s.tag+"event:"+vanished, s.tag+"event:"+odd).Err())
	must(t, s.redis.Set(ctx, s.tag+"event:"+odd, "not a hash", 0).Err())
	must(t, s.redis.HSet(ctx, s.tag+"event:"+unreadable, "k", "session.sneezed").Err())
	if backlog, err := s.Backlog(ctx, s.bucket()); err != nil || backlog.Dead != 3 {
		t.Errorf("counted %+v: %v", backlog, err)
	}
	if got := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{})); slices.Contains(got, old) || !slices.Contains(got, unreadable) {
		t.Errorf("listed %v", got)
	}
	if sent, err := s.Resend(ctx, outbox.ResendRequest{IDs: []string{old, vanished}}); err != nil || sent.Sent != 0 {
		t.Errorf("sent %+v again: %v", sent, err)
	}
}

// A million of them must not block Redis: each call forgets some, and none is listed.
func TestDeadLetters_ManyExpired(t *testing.T) {
	s := newFixture(t)
	const expired, once = 1000, 100
	long := float64(time.Now().Add(-30*24*time.Hour - time.Minute).UnixMilli())
	for _, key := range []string{s.tag + "dead", s.tag + "dead:" + s.asks.MerchantID} {
		for i := range expired {
			must(t, s.redis.ZAdd(t.Context(), key, goredis.Z{Score: long, Member: fmt.Sprint("evt_", i)}).Err())
		}
	}
	letter := s.deadLetter(t, "dns")
	for _, key := range []string{s.tag + "dead", s.tag + "dead:" + s.asks.MerchantID} {
		if n := s.redis.ZCard(t.Context(), key).Val(); n != expired-once+1 {
			t.Errorf("after a new one %d are left in %s, want %d", n, key, expired-once+1)
		}
		if left := s.redis.PTTL(t.Context(), key).Val(); left <= 0 || left > 30*24*time.Hour {
			t.Errorf("%s ends after %s, want 30 days", key, left)
		}
	}
	if got := deadLetterIDs(s.deadLetters(t, outbox.DeadLetterFilter{})); !slices.Equal(got, []string{letter}) {
		t.Errorf("listed %v, want %s", got, letter)
	}
	if n := s.redis.ZCard(t.Context(), s.tag+"dead").Val(); n != expired-2*once+1 {
		t.Errorf("after a list %d are left, want %d", n, expired-2*once+1)
	}
}

// An endpoint that fails for weeks does not fill Redis: the oldest dead letters are dropped, with their events.
func TestDeadLetters_OldestAreDropped(t *testing.T) {
	s := newFixture(t)
	other := s
	other.asks = storetest.MerchantIn(s.bucket())
	kept := []string{other.deadLetter(t, "dns")}
	first, second := s.deadLetter(t, "dns"), s.deadLetter(t, "dns")
	now := time.Now()
	for i, id := range []string{first, second} {
		for _, key := range []string{"dead", "dead:" + s.asks.MerchantID} {
			must(t, s.redis.ZAdd(t.Context(), s.tag+key, goredis.Z{Score: float64(now.Add(time.Duration(i-10) * time.Minute).UnixMilli()), Member: id}).Err())
		}
	}
	var others []goredis.Z
	for i := range outbox.MaxDeadLetters - 2 {
		others = append(others, goredis.Z{Score: float64(now.UnixMilli()), Member: fmt.Sprint("evt_other_", i)})
	}
	must(t, s.redis.ZAdd(t.Context(), s.tag+"dead:"+s.asks.MerchantID, others...).Err())

	kept = append(kept, s.deadLetter(t, "timeout"))
	s.fail(t, "here", func(f *outbox.Failure) { f.Retry = -1 })
	for _, id := range []string{first, second} {
		if hash, due, dead := s.remains(t, id); hash || due || dead {
			t.Errorf("%s: left are the event %t, its due time %t, a dead letter %t", id, hash, due, dead)
		}
	}
	for _, id := range kept {
		if hash, _, dead := s.remains(t, id); !hash || !dead {
			t.Errorf("%s: left are the event %t, a dead letter %t", id, hash, dead)
		}
	}
	if n := s.redis.ZCard(t.Context(), s.tag+"dead:"+s.asks.MerchantID).Val(); n != outbox.MaxDeadLetters {
		t.Errorf("%d dead letters of the merchant, want %d", n, outbox.MaxDeadLetters)
	}
	if n := s.DroppedDeadLetters(); n != 2 {
		t.Errorf("%d are counted as dropped, want 2", n)
	}
}

// Endpoints are watched for the health that live events show. An event of test mode that is sent again leaves none to be watched, which nobody
// could end: its account is no merchant's id.
func TestResend_TestModeWatchesNothing(t *testing.T) {
	s := newFixture(t).inTestMode()
	id := s.event(t)
	must(t, s.redis.HSet(t.Context(), s.tag+"event:"+id, "b", "unreadable").Err())
	if leases := s.leaseFor(t, time.Hour, 10); len(leases) != 0 { // it is a dead letter now
		t.Fatalf("leased %+v", leases)
	}
	resent, err := s.Resend(t.Context(), outbox.ResendRequest{IDs: []string{id}})
	if err != nil || resent.Sent != 1 {
		t.Fatalf("sent %+v again: %v", resent, err)
	}
	if watched := s.redis.ZRange(t.Context(), s.tag+"watched", 0, -1).Val(); len(watched) != 0 {
		t.Errorf("watched: %v", watched)
	}
}

// Events that are sent again are in the feed already, and test events are in none: who waits for the feed is not woken, as it is charged for each
// read. A dispatcher is.
func TestPublish_NothingNewInFeeds(t *testing.T) {
	s := newFixture(t)
	dead := s.deadLetter(t, "dns")
	testEvent := func(trigger string) feed.Event {
		return feed.NewWebhookTest(s.asks.MerchantID, "Acme Coffee", trigger, storetest.RotatedAt)
	}
	for name, send := range map[string]func() error{
		"sent again":      func() error { _, err := s.Resend(t.Context(), outbox.ResendRequest{IDs: []string{dead}}); return err },
		"a test":          func() error { _, err := s.RecordTest(t.Context(), testEvent("1")); return err },
		"a person's test": func() error { _, err := s.SendWebhookTest(t.Context(), testEvent("2")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			subscription := s.redis.Subscribe(t.Context(), s.tag+store.EventsChannel)
			defer func() { must(t, subscription.Close()) }()
			_, err := subscription.Receive(t.Context()) // it is confirmed
			must(t, err)
			must(t, send())
			message, err := subscription.ReceiveMessage(t.Context())
			must(t, err)
			if _, account, _ := strings.Cut(message.Payload, " "); account != "-" {
				t.Errorf("%q wakes who waits for the feed of %q", message.Payload, account)
			}
		})
	}
}
