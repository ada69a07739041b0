package outbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// A merchant whose endpoint takes nothing keeps as many events as its bound says: the others, the first of them, are dead letters. Another merchant of the
// bucket keeps all of its own.
func TestEndExcess(t *testing.T) {
	s := newFixture(t)
	victim := s
	victim.asks = storetest.MerchantIn(s.bucket())
	kept := []string{victim.event(t), victim.event(t)}
	var ids []string
	for i := range 5 {
		id := s.event(t)
		dueAt(t, s.redis, s.tag, id, time.UnixMilli(int64(1000+i)))
		ids = append(ids, id)
	}
	must(t, endExcess(t, s, 2))
	must(t, endExcess(t, s, 2))
	for i, id := range ids {
		if hash, due, dead := s.remains(t, id); !hash || dead == due || dead != (i < 3) {
			t.Errorf("event %d: left are the event %t, its due time %t, a dead letter %t", i, hash, due, dead)
		}
	}
	for _, id := range kept {
		if hash, due, dead := victim.remains(t, id); !hash || !due || dead {
			t.Errorf("another merchant's event: left are the event %t, its due time %t, a dead letter %t", hash, due, dead)
		}
	}
	letters, err := s.DeadLetters(t.Context(), outbox.DeadLetterFilter{Merchant: "acme/coffee"})
	must(t, err)
	if got := deadLetterIDs(letters); !sameSet(got, ids[:3]) || letters[0].Reason != outbox.ReasonTooMany {
		t.Errorf("dead letters %v because of %q", got, letters[0].Reason)
	}
	if leased := leaseIDs(s.leaseFor(t, time.Hour, 10)); !sameSet(leased, slices.Concat(ids[3:], kept)) {
		t.Errorf("leased %v, want what is left", leased)
	}
}

// An event that a dispatcher is trying stays its own, and one of test mode ends.
func TestEndExcess_Left(t *testing.T) {
	s := newFixture(t)
	s.event(t)
	lease := s.one(t)
	s.event(t)
	must(t, endExcess(t, s, 1))
	must(t, s.RecordDelivery(t.Context(), lease, outbox.Target{ID: "a target"}))

	test := s.inTestMode()
	id := test.event(t)
	dueAt(t, s.redis, s.tag, id, time.UnixMilli(1000))
	test.event(t)
	must(t, endExcess(t, test, 1))
	if hash, due, dead := test.remains(t, id); hash || due || dead {
		t.Errorf("test mode: left are the event %t, its due time %t, a dead letter %t", hash, due, dead)
	}
	if left := leaseIDs(s.leaseFor(t, time.Hour, 10)); len(left) != 1 {
		t.Errorf("%d events are left, want one", len(left))
	}
}

// A merchant with a long backlog, whose turn comes first, leaves the other merchants of the bucket a share of what is found at once.
func TestExcess_Shares(t *testing.T) {
	s := newFixture(t)
	victim := s
	victim.asks = storetest.MerchantIn(s.bucket())
	for range 3 {
		victim.event(t)
	}
	storetest.CopyEvent(t, s.redis, s.tag+"event:"+s.event(t), s.asks.MerchantID, 1000)
	all, err := s.Excess(t.Context(), s.bucket(), 1)
	must(t, err)
	ended := map[string]int{}
	for _, excess := range all {
		if ended[excess.MerchantID], err = s.EndExcess(t.Context(), excess, "acme/coffee"); err != nil {
			t.Fatal(err)
		}
	}
	if ended[victim.asks.MerchantID] != 2 || ended[s.asks.MerchantID] != 50 {
		t.Errorf("ended %v, want all two of the short backlog and the share of the long one", ended)
	}
}
