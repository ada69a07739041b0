package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// What Redis holds of a key's last use must never be older than a minute, however often the minutes change.
func TestTheLastUseIsWrittenOnceAMinute(t *testing.T) {
	uses, now := store.NewLastUses(), time.Unix(1_800_000_000, 0)
	var written time.Time
	writes := 0
	for range 1000 {
		if uses.Due("key", now) {
			uses.Wrote("key")
			written = now
			writes++
		}
		if !uses.Due("rejected", now) {
			t.Fatal("asking alone takes the use for written")
		}
		if now.Sub(written) > time.Minute {
			t.Fatalf("at %s the last use is that of %s ago", now, now.Sub(written))
		}
		now = now.Add(700 * time.Millisecond)
	}
	if writes > 13 { // 700 s
		t.Errorf("%d writes in 700 s", writes)
	}
}

// Keys that are not used any more are forgotten.
func TestTheKeysOfPastMinutesAreForgotten(t *testing.T) {
	uses, now := store.NewLastUses(), time.Unix(1_800_000_000, 0)
	uses.Due("a", now)
	uses.Wrote("a")
	uses.Due("b", now.Add(time.Minute))
	if n := uses.Remembered(); n != 0 {
		t.Errorf("%d keys are remembered", n)
	}
}

func TestLastUsesAreReadByKey(t *testing.T) {
	server := redistest.Start(t)
	s, inspect, asks := open(t, server.URL()), client(t, server), merchant()
	admitted, err := s.Admit(t.Context(), asks)
	must(t, err)
	keyIDs := []string{asks.KeyID}
	for i := range 600 { // more than one script reads
		keyIDs = append(keyIDs, fmt.Sprintf("unused%06d", i))
	}
	must(t, inspect.Set(t.Context(), bucketTag(asks.MerchantID)+"used:unused000599", "1800000000000", 0).Err())
	uses, err := s.LastUses(t.Context(), session.BucketOf(asks.MerchantID), keyIDs)
	must(t, err)
	if len(uses) != 2 || !uses[asks.KeyID].Equal(admitted.Now.Truncate(time.Millisecond)) || uses["unused000599"].Unix() != 1_800_000_000 {
		t.Errorf("last uses %v, want that of %s at %s", uses, asks.KeyID, admitted.Now)
	}
	if uses, err := s.LastUses(t.Context(), 0, nil); err != nil || len(uses) != 0 {
		t.Errorf("without keys: %v, %v", uses, err)
	}
	must(t, inspect.Set(t.Context(), bucketTag(asks.MerchantID)+"used:"+asks.KeyID, "yesterday", 0).Err())
	if _, err := s.LastUses(t.Context(), session.BucketOf(asks.MerchantID), keyIDs); !errors.Is(err, redis.ErrCorrupt) {
		t.Errorf("one that cannot be read: %v", err)
	}
}
