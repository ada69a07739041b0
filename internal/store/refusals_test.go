package store_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

const refusedKey = "refusals:"

// block is the i-th of many blocks.
func block(i int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
}

// refused are refusals of one merchant.
func refused(merchantID string, others int64, counts map[int]int64) store.Refusals {
	refusals := store.Refusals{MerchantID: merchantID, Allowlist: "list", Blocks: map[netip.Prefix]int64{}, Others: others}
	for i, count := range counts {
		refusals.Blocks[block(i)] = count
	}
	return refusals
}

func refusalsOf(t *testing.T, s *services, merchantID string) (store.MerchantRefusals, bool) {
	t.Helper()
	found, _, err := s.Refusals(t.Context(), session.BucketOf(merchantID))
	must(t, err)
	for _, refusals := range found {
		if refusals.MerchantID == merchantID {
			return refusals, true
		}
	}
	return store.MerchantRefusals{}, false
}

// counts are those of the blocks, and the others'.
func counts(t *testing.T, s *services, merchantID string) (map[netip.Prefix]int64, int64) {
	t.Helper()
	found, _ := refusalsOf(t, s, merchantID)
	all := map[netip.Prefix]int64{}
	for _, refused := range found.Blocks {
		all[refused.Block] = refused.Count
	}
	return all, found.Others.Count
}

func add(t *testing.T, s *services, refusals store.Refusals) []netip.Prefix {
	t.Helper()
	kept, err := s.AddRefusals(t.Context(), refusals)
	must(t, err)
	return kept
}

func TestRefusalsOfAllReplicasAreAdded(t *testing.T) {
	one, other, id := open(t, shared.URL()), open(t, shared.URL()), merchant().MerchantID
	before := client(t, shared).Time(t.Context()).Val().Truncate(time.Millisecond)
	add(t, one, refused(id, 0, map[int]int64{1: 2, 2: 1}))
	if kept := add(t, other, refused(id, 4, map[int]int64{2: 5, 3: 1})); len(kept) != 3 {
		t.Errorf("%v are kept", kept)
	}
	found, there := refusalsOf(t, one, id)
	if !there || len(found.Blocks) != 3 || found.Blocks[0].Block != block(2) || found.Blocks[0].Count != 6 || found.Blocks[1].Count != 2 || found.Others.Count != 4 {
		t.Fatalf("found %+v", found)
	}
	if first := found.Blocks[0]; first.First.Before(before) || first.Last.Before(first.First) || first.Allowlist != "list" {
		t.Errorf("found %+v, begun at %s", first, before)
	}
	ttl := client(t, shared).PTTL(t.Context(), bucketTag(id)+refusedKey+id).Val()
	if ttl <= store.RefusalsShown || ttl > 30*24*time.Hour {
		t.Errorf("they end in %s", ttl)
	}
}

// Somebody with a good key comes from many networks: first from as many as are kept, then from ever others. A network that is used again
// and again gets in, and stays. No request is counted twice or not at all.
func TestManyBlocksDoNotHideOne(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	var total int64
	flood := func(first, n int, count int64) {
		for i := first; i < first+n; i += store.MaxRefusedBlocks {
			some := map[int]int64{}
			for j := range store.MaxRefusedBlocks {
				some[i+j] = count
				total += count
			}
			add(t, s, refused(id, 0, some))
		}
	}
	flood(0, store.MaxRefusedBlocks, 1000)
	till := 60_000
	for range 20 {
		add(t, s, refused(id, 1, map[int]int64{till: 2}))
		total += 3
	}
	flood(1000, 20*store.MaxRefusedBlocks, 1)
	blocks, others := counts(t, s, id)
	if len(blocks) != store.MaxRefusedBlocks || blocks[block(till)] != 40 {
		t.Errorf("%d blocks are kept, %v", len(blocks), blocks)
	}
	sum := others
	for _, count := range blocks {
		sum += count
	}
	if sum != total {
		t.Errorf("%d requests are counted, want %d", sum, total)
	}
	if size := client(t, shared).MemoryUsage(t.Context(), bucketTag(id)+refusedKey+id).Val(); size > 4096 {
		t.Errorf("they take %d bytes", size)
	}
}

// setBack makes the refusals older.
func setBack(t *testing.T, id string, by time.Duration) {
	t.Helper()
	key := bucketTag(id) + refusedKey + id
	var record map[string]any
	must(t, json.Unmarshal([]byte(client(t, shared).Get(t.Context(), key).Val()), &record))
	entries := []any{record["o"]}
	for _, entry := range record["b"].(map[string]any) {
		entries = append(entries, entry)
	}
	for _, entry := range entries {
		fields := entry.(map[string]any)
		fields["l"] = fields["l"].(float64) - float64(by.Milliseconds())
	}
	text, err := json.Marshal(record)
	must(t, err)
	must(t, client(t, shared).Set(t.Context(), key, text, time.Hour).Err())
}

func TestRefusalsEndAfterADay(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	add(t, s, refused(id, 3, map[int]int64{1: 2}))
	setBack(t, id, store.RefusalsShown+time.Second)
	add(t, s, refused(id, 1, map[int]int64{2: 1}))
	blocks, others := counts(t, s, id)
	if diff := cmp.Diff(map[netip.Prefix]int64{block(2): 1}, blocks, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || others != 1 {
		t.Errorf("%d others, (-want +got):\n%s", others, diff)
	}
	other := refused(id, 2, map[int]int64{2: 1})
	other.Allowlist = "another list"
	add(t, s, other)
	if _, others := counts(t, s, id); others != 2 {
		t.Errorf("%d others of another list, want 2", others)
	}
}

func TestWhatCannotBeReadBeginsAgain(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	for _, text := range []string{"", "nonsense", "7", `{"b":7}`, `[]`} {
		must(t, client(t, shared).Set(t.Context(), bucketTag(id)+refusedKey+id, text, 0).Err())
		add(t, s, refused(id, 0, map[int]int64{1: 1}))
		if blocks, _ := counts(t, s, id); len(blocks) != 1 || blocks[block(1)] != 1 {
			t.Errorf("%q became %v", text, blocks)
		}
	}
}

func TestRefusalsRememberTheirReport(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	add(t, s, refused(id, 0, map[int]int64{1: 2}))
	before, _ := refusalsOf(t, s, id)
	must(t, s.RefusalsReported(t.Context(), before, "10.0.1.0/24", 2))
	add(t, s, refused(id, 0, map[int]int64{1: 1}))
	found, _ := refusalsOf(t, s, id)
	if got := found.Reported; got.Blocks != "10.0.1.0/24" || got.Count != 2 || got.At.IsZero() {
		t.Errorf("reported: %+v", got)
	}
	must(t, s.ForgetRefusals(t.Context(), before)) // some were added since
	if _, there := refusalsOf(t, s, id); !there {
		t.Error("refusals that nobody has read were forgotten")
	}
	must(t, s.RefusalsReported(t.Context(), before, "10.0.2.0/24", 2)) // another dispatcher, at the same time
	if found, _ = refusalsOf(t, s, id); found.Reported.Blocks == "10.0.1.0/24" || found.Reported.Blocks == "10.0.2.0/24" {
		t.Errorf("it is taken for certain that %+v was reported last", found.Reported)
	}
	must(t, s.ForgetRefusals(t.Context(), found))
	if found, there := refusalsOf(t, s, id); there {
		t.Errorf("still there: %+v", found)
	}
	must(t, s.RefusalsReported(t.Context(), found, "", 0)) // of what is gone
	if _, there := refusalsOf(t, s, id); there {
		t.Error("a report made refusals")
	}
}

// The status of a Merchant has one budget, whatever changes.
func TestRefusalsAndHealthShareABudget(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	add(t, s, refused(id, 0, map[int]int64{1: 1}))
	for i := range outbox.ReportBurst {
		found, _ := refusalsOf(t, s, id)
		now := client(t, shared).Time(t.Context()).Val()
		if !found.MayReportChange(now) {
			t.Fatalf("report %d is refused", i+1)
		}
		if i%2 == 0 {
			must(t, s.RefusalsReported(t.Context(), found, fmt.Sprint("10.0.", i, ".0/24"), 1))
			continue
		}
		states, err := s.Endpoints(t.Context(), session.BucketOf(id), id)
		must(t, err)
		must(t, s.EndpointReported(t.Context(), states.States[0], fmt.Sprint("reason ", i), false))
	}
	now := client(t, shared).Time(t.Context()).Val()
	found, _ := refusalsOf(t, s, id)
	states, err := s.Endpoints(t.Context(), session.BucketOf(id), id)
	must(t, err)
	if found.MayReportChange(now) || states.States[0].MayReportChange(now) || !found.MayReportChange(now.Add(outbox.ReportInterval)) {
		t.Error("the budget is not used up by both, or not for a minute")
	}
	must(t, s.RefusalsReported(t.Context(), found, found.Reported.Blocks, 7)) // no change
	if found, _ = refusalsOf(t, s, id); !found.MayReportChange(now.Add(outbox.ReportInterval)) || found.Reported.Count != 7 {
		t.Error("a report without a change costs")
	}
}

// everyRefusal makes each script of refusals write all that it ever does.
func everyRefusal(t *testing.T, s *services, merchantID string) {
	t.Helper()
	for i := range store.MaxRefusedBlocks + 2 {
		add(t, s, refused(merchantID, 1, map[int]int64{i: 1}))
	}
	found, _ := refusalsOf(t, s, merchantID)
	must(t, s.RefusalsReported(t.Context(), found, "some", 1))
	must(t, s.RefusalsReported(t.Context(), found, "some", 1))
	found, _ = refusalsOf(t, s, merchantID)
	must(t, s.ForgetRefusals(t.Context(), found))
}
