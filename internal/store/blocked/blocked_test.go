package blocked_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// shared is the redis-server of every test that does not harm its server.
var shared *redistest.Server

func TestMain(m *testing.M) { redistest.Main(m, func(s *redistest.Server) { shared = s }) }

type services = storetest.Services

var (
	open        = storetest.New
	client      = storetest.Inspect
	merchant    = storetest.Merchant
	newID       = storetest.ID
	merchantTag = storetest.Tag
	must        = storetest.Must
)

// block is the i-th of many blocks.
func block(i int) string { return fmt.Sprintf("10.%d.%d.0/24", i/256, i%256) }

func addBlocked(t *testing.T, s *services, merchantID string, requests map[string]int64) {
	t.Helper()
	must(t, s.Blocked.Add(t.Context(), merchantID, requests))
}

func findBlocked(t *testing.T, s *services, merchantID string) (blocked.Addresses, bool) {
	t.Helper()
	found, _, err := s.Blocked.List(t.Context(), session.MerchantBucket(merchantID))
	must(t, err)
	for _, addresses := range found {
		if addresses.MerchantID == merchantID {
			return addresses, true
		}
	}
	return blocked.Addresses{}, false
}

// blockedRequests are those of the merchant's blocks, and how many these are together.
func blockedRequests(t *testing.T, s *services, merchantID string) (blocks map[string]int64, sum int64) {
	t.Helper()
	found, _ := findBlocked(t, s, merchantID)
	blocks = map[string]int64{}
	for _, block := range found.Blocks {
		blocks[block.Block] = block.Requests
		sum += block.Requests
	}
	return blocks, sum
}

func TestAdd_AllReplicas(t *testing.T) {
	one, other, id := open(t, shared.URL()), open(t, shared.URL()), merchant().MerchantID
	before := client(t, shared).Time(t.Context()).Val().Truncate(time.Millisecond)
	addBlocked(t, one, id, map[string]int64{block(1): 2, block(2): 1})
	addBlocked(t, other, id, map[string]int64{block(2): 5, block(3): 1, blocked.OtherBlocks: 4})
	found, there := findBlocked(t, one, id)
	if !there || len(found.Blocks) != 4 || found.Blocks[0].Block != block(2) || found.Blocks[0].LastSeen.Before(before) || !found.ReportedAt.IsZero() {
		t.Fatalf("found %+v, started at %s", found, before)
	}
	blocks, _ := blockedRequests(t, one, id)
	if want := map[string]int64{block(1): 2, block(2): 6, block(3): 1, blocked.OtherBlocks: 4}; !maps.Equal(blocks, want) {
		t.Errorf("%v, want %v", blocks, want)
	}
	for _, suffix := range []string{"", ":seen"} {
		if ttl := client(t, shared).PTTL(t.Context(), merchantTag(id)+"blocked:"+id+suffix).Val(); ttl <= 0 || ttl > blocked.Shown {
			t.Errorf("%q ends in %s", suffix, ttl)
		}
	}
}

// The others may have fewer requests than each block that is kept.
func TestAdd_FewOthers(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	var total int64
	for i := range 400 {
		addBlocked(t, s, id, map[string]int64{fmt.Sprintf("2001:db8:%x::/48 0123456789abcdef", i): int64(1 + i)})
		total += int64(1 + i)
	}
	if blocks, sum := blockedRequests(t, s, id); len(blocks) > blocked.MaxBlocks+1 || sum != total {
		t.Errorf("%d blocks are kept, %d requests are counted, want %d", len(blocks), sum, total)
	}
}

// Requests with a good key from thousands of networks do not hide one that is used again and again, takes little of Redis, and no
// request is counted twice or not at all.
func TestAdd_ManyBlocks(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	var total int64
	flood := func(first, rounds int) {
		for i := range rounds {
			requests := map[string]int64{blocked.OtherBlocks: 7}
			for j := range blocked.MaxBlocks {
				requests[fmt.Sprintf("2001:db8:%x::/48 0123456789abcdef", first+i*blocked.MaxBlocks+j)] = 1
			}
			addBlocked(t, s, id, requests)
			total += 7 + blocked.MaxBlocks
		}
	}
	flood(0, 20)
	const till = "10.0.0.0/24"
	for range 20 {
		addBlocked(t, s, id, map[string]int64{till: 2})
		total += 2
	}
	flood(1000, 20)
	blocks, sum := blockedRequests(t, s, id)
	if len(blocks) > blocked.MaxBlocks+1 || blocks[till] != 40 {
		t.Errorf("%d blocks are kept, %v", len(blocks), blocks)
	}
	if sum != total {
		t.Errorf("%d requests are counted, want %d", sum, total)
	}
	var size int64
	for _, suffix := range []string{"", ":seen"} {
		size += client(t, shared).MemoryUsage(t.Context(), merchantTag(id)+"blocked:"+id+suffix).Val()
	}
	if size > 4096 {
		t.Errorf("they take %d bytes", size)
	}
}

func TestAdd_EndAfterADay(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	c := client(t, shared)
	addBlocked(t, s, id, map[string]int64{block(1): 2, block(2): 1, block(3): 9, blocked.OtherBlocks: 3})
	old := c.Time(t.Context()).Val().Add(-blocked.Shown - time.Second)
	for _, ended := range []string{block(1), block(3), blocked.OtherBlocks} {
		must(t, c.ZAdd(t.Context(), merchantTag(id)+"blocked:"+id+":seen", goredis.Z{Score: float64(old.UnixMilli()), Member: ended}).Err())
	}
	addBlocked(t, s, id, map[string]int64{block(2): 1, block(3): 1})
	if blocks, _ := blockedRequests(t, s, id); !maps.Equal(blocks, map[string]int64{block(2): 2, block(3): 1}) {
		t.Errorf("a day later: %v", blocks)
	}
}

func TestRecordReport(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	addBlocked(t, s, id, map[string]int64{block(1): 2})
	before, _ := findBlocked(t, s, id)
	must(t, s.Blocked.RecordReport(t.Context(), before, block(1)))
	addBlocked(t, s, id, map[string]int64{block(1): 1})
	found, _ := findBlocked(t, s, id)
	if found.Reported != block(1) || found.ReportedAt.IsZero() {
		t.Errorf("reported: %+v", found)
	}
	must(t, s.Blocked.RecordReport(t.Context(), before, block(2))) // another dispatcher, at the same time
	if found, _ = findBlocked(t, s, id); found.Reported != "" || found.ReportedAt.IsZero() {
		t.Errorf("it is taken for certain that %+v was reported last", found)
	}
	must(t, client(t, shared).Del(t.Context(), merchantTag(id)+"blocked:"+id).Err()) // a day later
	if found, there := findBlocked(t, s, id); !there {
		t.Errorf("forgotten while the status has it: %+v", found)
	}
	must(t, s.Blocked.RecordReport(t.Context(), found, ""))
	if found, there := findBlocked(t, s, id); there {
		t.Errorf("still there: %+v", found)
	}
	must(t, s.Blocked.RecordReport(t.Context(), found, block(1))) // of what is gone
	if found, there := findBlocked(t, s, id); there {
		t.Errorf("a report made %+v", found)
	}
	addBlocked(t, s, id, map[string]int64{block(1): 1})
	must(t, s.Blocked.Forget(t.Context(), id))
	if keys := client(t, shared).Keys(t.Context(), merchantTag(id)+"blocked:"+id+"*").Val(); len(keys) != 0 {
		t.Errorf("left of a merchant that is gone: %v", keys)
	}
	if _, there := findBlocked(t, s, id); there {
		t.Error("it is still listed")
	}
}

// More merchants than are read at once.
func TestList_Pages(t *testing.T) {
	s := open(t, shared.URL())
	first := merchant().MerchantID
	bucket := session.MerchantBucket(first)
	ids := map[string]bool{}
	for len(ids) < 230 {
		if id := newID(); session.MerchantBucket(id) == bucket {
			ids[id] = true
			addBlocked(t, s, id, map[string]int64{block(1): 1})
		}
	}
	found, _, err := s.Blocked.List(t.Context(), bucket)
	must(t, err)
	for _, addresses := range found {
		delete(ids, addresses.MerchantID)
	}
	if len(ids) != 0 {
		t.Errorf("%d merchants are missing", len(ids))
	}
}

// The status of a Merchant has one budget, whatever changes.
func TestRecordReport_SharesABudgetWithHealth(t *testing.T) {
	s, id := open(t, shared.URL()), merchant().MerchantID
	addBlocked(t, s, id, map[string]int64{block(1): 1})
	for i := range outbox.ReportBurst {
		found, _ := findBlocked(t, s, id)
		now := client(t, shared).Time(t.Context()).Val()
		if !found.MayReportChange(now) {
			t.Fatalf("report %d is not allowed", i+1)
		}
		if i%2 == 0 {
			must(t, s.Blocked.RecordReport(t.Context(), found, block(i)))
			continue
		}
		states, err := s.Endpoints(t.Context(), session.MerchantBucket(id), id)
		must(t, err)
		must(t, s.RecordEndpointReport(t.Context(), states.States[0], fmt.Sprint("reason ", i), false))
	}
	now := client(t, shared).Time(t.Context()).Val()
	found, _ := findBlocked(t, s, id)
	states, err := s.Endpoints(t.Context(), session.MerchantBucket(id), id)
	must(t, err)
	if found.MayReportChange(now) || states.States[0].MayReportChange(now) || !found.MayReportChange(now.Add(outbox.ReportInterval)) {
		t.Error("the budget is not used up by both, or not for a minute")
	}
	must(t, s.Blocked.RecordReport(t.Context(), found, found.Reported)) // no change
	if found, _ = findBlocked(t, s, id); !found.MayReportChange(now.Add(outbox.ReportInterval)) {
		t.Error("a report without a change costs")
	}
}

func TestScripts_DeclareTheirKeys(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	storetest.CheckDeclared(t, server, func() { everyBranch(t, s, merchant().MerchantID) })
}

func TestScripts_FullRedis(t *testing.T) {
	reported := func(blocks string) func(*testing.T, *services, admission.Request) func() error {
		return func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			addBlocked(t, s, asks.MerchantID, map[string]int64{block(1): 1})
			all, _, err := s.Blocked.List(t.Context(), session.MerchantBucket(asks.MerchantID))
			must(t, err)
			return func() error { return s.Blocked.RecordReport(t.Context(), all[0], blocks) }
		}
	}
	storetest.CheckFull(t, redistest.Start(t), []storetest.FullCase{
		{Name: "add blocked addresses", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			return func() error { return s.Blocked.Add(t.Context(), asks.MerchantID, map[string]int64{block(1): 1}) }
		}},
		{Name: "list blocked addresses", Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			addBlocked(t, s, asks.MerchantID, map[string]int64{block(1): 1})
			return func() error {
				_, _, err := s.Blocked.List(t.Context(), session.MerchantBucket(asks.MerchantID))
				return err
			}
		}},
		{Name: "report blocked addresses", Drains: true, Arrange: reported("a block")},
		{Name: "report that none is left", Drains: true, Arrange: reported("")},
		{Name: "forget blocked addresses", Drains: true, Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			addBlocked(t, s, asks.MerchantID, map[string]int64{block(1): 1})
			return func() error { return s.Blocked.Forget(t.Context(), asks.MerchantID) }
		}},
	})
}

// everyBranch makes each script of blocked addresses write all that it ever does.
func everyBranch(t *testing.T, s *services, merchantID string) {
	t.Helper()
	for i := range blocked.MaxBlocks + 2 {
		addBlocked(t, s, merchantID, map[string]int64{block(i): 1})
	}
	found, _ := findBlocked(t, s, merchantID)
	for _, blocks := range []string{"some", "others", ""} {
		must(t, s.Blocked.RecordReport(t.Context(), found, blocks))
		found, _ = findBlocked(t, s, merchantID)
	}
	must(t, s.Blocked.RecordReport(t.Context(), blocked.Addresses{MerchantID: merchantID}, "unknown"))
	must(t, s.Blocked.RecordReport(t.Context(), blocked.Addresses{MerchantID: merchantID}, "unknown"))
	must(t, s.Blocked.Forget(t.Context(), merchantID))
	must(t, s.Blocked.Add(t.Context(), merchantID, nil))
	_, _ = findBlocked(t, s, merchantID)
}
