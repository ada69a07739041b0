package keystate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const interval = 10 * time.Minute

func TestLastUses_ByKey(t *testing.T) {
	server := redistest.Start(t)
	s, inspect, asks := open(t, server.URL()), client(t, server), merchant()
	_, err := s.Admit(t.Context(), asks)
	must(t, err)
	tag := merchantTag(asks.MerchantID)
	keyIDs := []string{asks.KeyID}
	for i := range 600 { // more than one script reads
		keyIDs = append(keyIDs, fmt.Sprintf("unused%06d", i))
	}
	must(t, inspect.Set(t.Context(), tag+"used:unused000599", "00c0ffee 1800000000", 0).Err())
	must(t, inspect.Set(t.Context(), tag+"used:unused000003", "yesterday", 0).Err())
	must(t, inspect.HSet(t.Context(), tag+"used:unused000004", "a", "hash").Err())
	uses, err := s.Keys.LastUses(t.Context(), session.MerchantBucket(asks.MerchantID), keyIDs, time.Time{})
	must(t, err)
	if uses.Keys[asks.KeyID].Last(asks.Digest).IsZero() || uses.Keys["unused000599"] != "00c0ffee 1800000000" {
		t.Errorf("last uses %v", uses.Keys)
	}
	if unused, known := uses.Keys["unused000000"]; !known || unused != "" {
		t.Errorf("a key without a use: %q, %v", unused, known)
	}
	if _, known := uses.Keys["unused000003"]; known || len(uses.Keys) != 600 {
		t.Errorf("%d keys: only the unreadable one is unknown", len(uses.Keys))
	}
	none, err := s.Keys.LastUses(t.Context(), 0, nil, time.Time{})
	if err != nil || len(none.Keys) != 0 || none.ReadTime.IsZero() {
		t.Errorf("without keys: %v, %v", none, err)
	}
}

// Since when no use is missing: since the first read, and after a loss since the next one. Another reader does not hide the loss.
func TestLastUses_RecordingSince(t *testing.T) {
	server := redistest.Start(t)
	s, c, asks := open(t, server.URL()), client(t, server), merchant()
	marker := merchantTag(asks.MerchantID) + "uses"
	_, first := lastUses(t, s, asks, time.Time{})
	if since := first.RecordingSince.Sub(first.ReadTime); since != interval {
		t.Errorf("recording since %s after the first read, want the interval in which a replica repeats no write", since)
	}
	_, second := lastUses(t, s, asks, first.ReadTime)
	if !second.RecordingSince.Equal(first.RecordingSince) || second.ReadTime.Before(first.ReadTime) {
		t.Errorf("a second read: %+v after %+v", second, first)
	}

	before := time.UnixMilli(1_700_000_000_000)
	for name, lose := range map[string]func(){
		"flushed":            func() { must(t, c.FlushAll(t.Context()).Err()) },
		"put back":           func() { must(t, c.Set(t.Context(), marker, "1600000000000 1700000000000", 0).Err()) },
		"damaged":            func() { must(t, c.Set(t.Context(), marker, "yesterday", 0).Err()) },
		"ahead of the clock": func() { must(t, c.Set(t.Context(), marker, "9600000000000 9600000000000", 0).Err()) },
		"of another kind":    func() { must(t, c.Del(t.Context(), marker).Err()); must(t, c.HSet(t.Context(), marker, "a", 1).Err()) },
		"lost by a failover": func() {
			must(t, c.Set(t.Context(), marker, fmt.Sprintf("1600000000000 %d", second.ReadTime.UnixMilli()-1), 0).Err())
		},
	} {
		lose()
		_, lost := lastUses(t, s, asks, second.ReadTime)
		if lost.RecordingSince.Before(second.ReadTime) {
			t.Errorf("%s: recording since %s, want not before %s", name, lost.RecordingSince, second.ReadTime)
		}
	}
	must(t, c.Set(t.Context(), marker, fmt.Sprintf("1600000000000 %d", before.UnixMilli()), 0).Err())
	if _, kept := lastUses(t, s, asks, before); kept.RecordingSince.UnixMilli() != 1_600_000_000_000+interval.Milliseconds() {
		t.Errorf("nothing was lost, but recording since %s", kept.RecordingSince)
	}
}
