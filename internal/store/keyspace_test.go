package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// bucketTag is how all keys of the merchant must begin.
// keysOf returns the keys of the merchant's bucket that match. Other merchants' keys of the same
// bucket are told apart by what they hold: sessions by their owner, the rest by their name.
func keysOf(t testing.TB, asks store.Admission, pattern string) []string {
	t.Helper()
	c := client(t, shared)
	keys, err := c.Keys(t.Context(), bucketTag(asks.MerchantID)+pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(pattern, "session:") {
		return keys
	}
	var own []string
	for _, key := range keys {
		if owned(c, asks, key) {
			own = append(own, key)
		}
	}
	return own
}

// owned tells whether the session at the key is the merchant's.
func owned(c *goredis.Client, asks store.Admission, key string) bool {
	return strings.HasPrefix(c.HGet(context.Background(), key, "f").Val(), asks.MerchantID+"\t")
}

// The names are a contract: other programs, dashboards and the next release find them.
func TestKeysAndTheirLifetimes(t *testing.T) {
	s := storetest.OpenWith(t, shared.URL(), store.Options{SessionRetention: 48 * time.Hour})
	asks := with(merchant(), func(a *store.Admission) { a.Limit.RequestsPerSecond = 1 }) // so that its entry stays a while
	tag := bucketTag(asks.MerchantID)
	short := with(newSession(), func(n *store.NewSession) {
		n.Lifetime = time.Minute
		n.Idempotency = idempotencyKey(t, "order-1001")
	})
	long := with(newSession(), func(n *store.NewSession) {
		n.Lifetime = 36 * time.Hour
		n.Idempotency = idempotencyKey(t, "order-1002")
	})
	shortID := mustCreate(t, s, asks, short).Session.ID
	longID := mustCreate(t, s, asks, long).Session.ID
	override := store.Override{KeyRef: store.KeyRef{MerchantID: asks.MerchantID, KeyID: asks.KeyID}, Order: published.Order{Revision: 1}, Accepted: []store.Accepted{{Digest: asks.Digest}}}
	if err := s.WriteOverride(t.Context(), override); err != nil {
		t.Fatal(err)
	}

	c := client(t, shared)
	for key, want := range map[string]time.Duration{
		tag + "session:" + shortID.String():                              48*time.Hour + time.Minute,
		tag + "session:" + longID.String():                               84 * time.Hour,
		tag + "idem:" + asks.MerchantID + ":" + short.Idempotency.Hash(): 24 * time.Hour,
		tag + "idem:" + asks.MerchantID + ":" + long.Idempotency.Hash():  36 * time.Hour,
		tag + "order:" + asks.MerchantID + ":_mdf56rugwtv7Qm2TgNPhN":     84 * time.Hour, // as its newest session
		tag + "key:" + asks.KeyID:                                        7 * 24 * time.Hour,
		tag + "used:" + asks.KeyID:                                       90 * 24 * time.Hour,
	} {
		if got := c.PTTL(t.Context(), key).Val(); got > want || got < want-patience {
			t.Errorf("%s ends in %s, want %s", key, got, want)
		}
	}

	// The limiter forgets a caller when there is nothing left to remember: after 61 requests of 1 s each.
	for range 59 {
		if _, err := s.Admit(t.Context(), asks); err != nil {
			t.Fatal(err)
		}
	}
	key := tag + "rate:" + asks.MerchantID
	if got := c.PTTL(t.Context(), key).Val(); got > 61*time.Second+time.Millisecond || got < 61*time.Second-patience {
		t.Errorf("%s ends in %s, want 61 s", key, got)
	}

	// No two merchants of this test share a key, so whatever else bears the merchant's id is a key
	// nobody knows of.
	keys := c.Keys(t.Context(), "*"+asks.MerchantID+"*").Val()
	if len(keys) != 6 { // rate, two idem, two sessions and their order
		t.Errorf("keys with the merchant's id: %v", keys)
	}
}

func TestTheLimitersEntryEnds(t *testing.T) {
	s := open(t, shared.URL())
	asks := with(merchant(), func(a *store.Admission) { a.Limit.RequestsPerSecond = 200 })
	if _, err := s.Admit(t.Context(), asks); err != nil {
		t.Fatal(err)
	}
	c := client(t, shared)
	key := bucketTag(asks.MerchantID) + "rate:" + asks.MerchantID
	eventually(t, "the limiter's entry is gone", func() bool { return c.Exists(t.Context(), key).Val() == 0 })
}
