package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// The one thing that must never happen is a second charge because the first one's record is gone.
func TestAReplayWhoseSessionIsLostIsNotASecondCharge(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	asks := merchant()
	wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
	created := mustCreate(t, s, asks, wanted).Session
	if n := c.Del(t.Context(), bucketTag(asks.MerchantID)+"session:"+created.ID.String()).Val(); n != 1 {
		t.Fatal("the session is not where it should be")
	}
	for range 2 {
		_, again, err := s.CreateSession(t.Context(), asks, wanted)
		if !errors.Is(err, redis.ErrCorrupt) || !cmp.Equal(again, store.Created{}, sameSession) {
			t.Errorf("%+v, %v; want ErrCorrupt", again, err)
		}
	}
	if keys := keysOf(t, asks, "session:*"); len(keys) != 0 {
		t.Errorf("there is a session again: %v", keys)
	}
}

func TestAnUnreadableOverrideAdmitsNobody(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	for _, text := range []string{"", "-", "garbage", "5", "5 ", "-5 abc", "5x abc", "{}"} {
		asks := merchant()
		if err := c.Set(t.Context(), bucketTag(asks.MerchantID)+"key:"+asks.KeyID, text, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		for name, operation := range operations {
			if admitted, err := operation(t.Context(), s, asks); !errors.Is(err, redis.ErrCorrupt) || admitted != (store.Admitted{}) {
				t.Errorf("override %q: %s: %+v, %v; want ErrCorrupt", text, name, admitted, err)
			}
		}
	}
}

func TestUnreadableSessionsAreNotAnswered(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	for desc, harm := range map[string]struct{ field, value string }{
		"an unknown status":              {"s", "PAID"},
		"an empty status":                {"s", ""},
		"an amount that is no number":    {"f", "12.5\t900000\t\t\t\t\t\tAcme Coffee"},
		"an amount below zero":           {"f", "-1\t900000\t\t\t\t\t\tAcme Coffee"},
		"no expiry":                      {"x", ""},
		"an expiry that is no number":    {"x", "soon"},
		"a lifetime that is no number":   {"f", "1250\tx\t\t\t\t\t\tAcme Coffee"},
		"a tax that is no number":        {"f", "1250\t900000\t\t\tx\t\t\tAcme Coffee"},
		"a tip that is no number":        {"f", "1250\t900000\t\t\t\tx\t\tAcme Coffee"},
		"no lifetime":                    {"f", "1250\t\t\t\t\t\t\tAcme Coffee"},
		"no name":                        {"f", "1250\t900000\t\t\t\t\t1001"},
		"nothing behind the merchant":    {"f", ""},
		"an end although it is pending":  {"e", "1"},
		"a final status without its end": {"s", "COMPLETED"},
	} {
		asks := merchant()
		wanted := with(newSession(), func(n *store.NewSession) { n.Idempotency = idempotencyKey(t, "order-1001") })
		id := mustCreate(t, s, asks, wanted).Session.ID
		key := bucketTag(asks.MerchantID) + "session:" + id.String()
		switch {
		case harm.field == "f":
			c.HSet(t.Context(), key, "f", asks.MerchantID+"\t"+harm.value)
		case harm.field == "x" && harm.value == "":
			c.HDel(t.Context(), key, "x")
		default:
			c.HSet(t.Context(), key, harm.field, harm.value)
		}
		_, read, err := s.Session(t.Context(), asks, id)
		if !errors.Is(err, redis.ErrCorrupt) || !cmp.Equal(read, session.Session{}, sameSession) {
			t.Errorf("%s: read: %+v, %v; want ErrCorrupt", desc, read, err)
		}
		if _, again, err := s.CreateSession(t.Context(), asks, wanted); !errors.Is(err, redis.ErrCorrupt) || again.Replayed {
			t.Errorf("%s: replay: %v; want ErrCorrupt", desc, err)
		}
	}
}

func TestKeysOfAnotherTypeAreCorruptAndNotOverwritten(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	asks := merchant()
	id := session.NewID(asks.MerchantID, false)
	key := bucketTag(asks.MerchantID) + "session:" + id.String()
	if err := c.Set(t.Context(), key, "text", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Session(t.Context(), asks, id)
	if !errors.Is(err, redis.ErrCorrupt) || errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("read: %v, want ErrCorrupt", err)
	}
	if strings.Contains(err.Error(), key) || strings.Contains(err.Error(), id.String()) {
		t.Errorf("the error names the key: %v", err)
	}
}
