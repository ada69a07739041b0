package status

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/test/dispatchertest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

func list(blocks ...string) allowlist.List {
	var all allowlist.List
	for _, block := range blocks {
		all = append(all, netip.MustParsePrefix(block))
	}
	return all
}

// guarded is a merchant with an allowlist, but without a webhook.
func (f testFixture) guarded(bucket session.Bucket, blocks ...string) endpoints.Endpoint {
	endpoint := f.EndpointAt("", bucket)
	f.Index.Allow(endpoint.MerchantID, list(blocks...))
	return endpoint
}

// block counts requests from blocks, as an API replica does that knows the present allowlist.
func (f testFixture) block(t *testing.T, merchantID string, blocks ...string) {
	t.Helper()
	requests := map[string]int64{}
	for _, block := range blocks {
		requests[f.Index.Allowlist(merchantID).Block(netip.MustParsePrefix(block).Addr())]++
	}
	dispatchertest.Must(t, f.Blocked.Add(t.Context(), merchantID, requests))
}

// round lets the reporter look at all buckets.
func (r *Reporter) round(t *testing.T) {
	t.Helper()
	for range session.Buckets / blockedBuckets {
		_, err := r.reportHealth(t.Context())
		dispatchertest.Must(t, err)
	}
}

// wantBlocks compares the blocks that were reported last.
func (f testFixture) wantBlocks(t *testing.T, desc string, reports int, want string) {
	t.Helper()
	all := f.reports.Allowlists()
	if len(all) != reports {
		t.Fatalf("%s: %d reports, want %d", desc, len(all), reports)
	}
	if got := blockNames(all[len(all)-1]); got != want {
		t.Errorf("%s: reported %q, want %q", desc, got, want)
	}
}

// A block is reported once, whatever number of reporters and requests there are, and removed when the list is changed for it. What the
// changed list still refuses comes back.
func TestReportBlocked_ChangedList(t *testing.T) {
	f := newFixture(t)
	acme := f.guarded(7, "203.0.113.0/24").MerchantID
	first, second := f.reporter(), f.reporter()
	both := func() { first.round(t); second.round(t) }
	both()
	if n := len(f.reports.Allowlists()); n != 0 {
		t.Fatalf("%d reports of nothing", n)
	}
	f.block(t, acme, "198.51.100.0/24", "192.0.2.0/24")
	both()
	f.wantBlocks(t, "two blocks", 1, "192.0.2.0/24 198.51.100.0/24")
	f.block(t, acme, "198.51.100.0/24")
	both()
	f.wantBlocks(t, "another request", 1, "192.0.2.0/24 198.51.100.0/24")
	f.Index.Allow(acme, list("203.0.113.0/24", "198.51.100.7/32"))
	both()
	f.wantBlocks(t, "the list was changed for one", 2, "192.0.2.0/24")
	f.block(t, acme, "198.51.100.0/24")
	both()
	f.wantBlocks(t, "and refuses another address of that block", 3, "192.0.2.0/24 198.51.100.0/24")
	f.Index.Allow(acme, list("0.0.0.0/0"))
	both()
	f.wantBlocks(t, "everything is allowed", 4, "")
	f.Index.Allow(acme, nil)
	both()
	f.wantBlocks(t, "there is no list", 4, "")
	f.Index.Allow(acme, list("203.0.113.0/24"))
	both()
	f.wantBlocks(t, "what was counted under the same list shows again", 5, "192.0.2.0/24 198.51.100.0/24")
}

// What only the list of a key refuses is reported with the key, and no change of the merchant's list removes it.
func TestReportBlocked_ListOfAKey(t *testing.T) {
	f := newFixture(t)
	acme := f.guarded(7, "203.0.113.0/24").MerchantID
	r := f.reporter()
	address := netip.MustParseAddr("203.0.113.8")
	f.block(t, acme, "198.51.100.0/24")
	r.round(t)
	dispatchertest.Must(t, f.Blocked.Add(t.Context(), acme, map[string]int64{allowlist.KeyBlock(address, "abcdefgh2345"): 3}))
	r.round(t)
	f.wantBlocks(t, "a key's list", 2, "198.51.100.0/24 203.0.113.0/24 abcdefgh2345")
	dispatchertest.Must(t, f.Blocked.Add(t.Context(), acme, map[string]int64{allowlist.KeyBlock(address, "abcdefgh7777"): 1}))
	r.round(t)
	f.wantBlocks(t, "another key's list", 3, "198.51.100.0/24 203.0.113.0/24 abcdefgh2345 203.0.113.0/24 abcdefgh7777")
	f.Index.Allow(acme, list("0.0.0.0/0"))
	r.round(t)
	f.wantBlocks(t, "the merchant's list allows everything", 4, "203.0.113.0/24 abcdefgh2345 203.0.113.0/24 abcdefgh7777")
	status := f.reports.Allowlists()[3]
	if len(status.Refused) != 2 || status.Refused[0].KeyID != "abcdefgh2345" || status.Refused[0].Requests != 3 {
		t.Errorf("%+v", status.Refused)
	}
}

// What is known of a deleted merchant is forgotten. One that is not published yet, or without a tombstone, may come.
func TestReportBlocked_DeletedMerchant(t *testing.T) {
	f := newFixture(t)
	r := f.reporter()
	deleted, unknown, gone := f.guarded(1, "203.0.113.0/24"), dispatchertest.NewMerchantID(1), f.guarded(1, "203.0.113.0/24")
	for _, id := range []string{deleted.MerchantID, unknown, gone.MerchantID} {
		f.block(t, id, "198.51.100.0/24")
	}
	f.Index.Put(endpoints.Endpoint{State: endpoints.Withdrawn, MerchantID: deleted.MerchantID})
	f.reports.SetFail(ErrMerchantGone) // its tombstone comes soon
	r.round(t)
	r.round(t)
	found, _, err := f.Blocked.List(t.Context(), 1)
	dispatchertest.Must(t, err)
	kept := map[string]string{}
	for _, addresses := range found {
		kept[addresses.MerchantID] = addresses.Reported
	}
	if diff := cmp.Diff(map[string]string{unknown: "", gone.MerchantID: "198.51.100.0/24"}, kept); diff != "" {
		t.Errorf("kept, with what was reported (-want +got):\n%s", diff)
	}
}

// What fails is reported again. Counts are refreshed after ten minutes, if they changed.
func TestReportBlocked_RetryAndRefresh(t *testing.T) {
	f := newFixture(t)
	acme := f.guarded(7, "203.0.113.0/24").MerchantID
	key := storetest.BucketTag(session.MerchantBucket(acme)) + "blocked"
	r := f.reporter()
	f.block(t, acme, "198.51.100.0/24")
	f.reports.SetFail(errors.New("down"))
	dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
	f.reports.SetFail(nil)
	r.round(t)
	f.wantBlocks(t, "at first", 1, "198.51.100.0/24")

	refresh := func() {
		r.nextRefresh = 7
		_, err := r.refreshHealth(t.Context())
		dispatchertest.Must(t, err)
	}
	before := func(age time.Duration) float64 {
		return float64(f.Redis(t).Time(t.Context()).Val().Add(-age).UnixMilli())
	}
	f.block(t, acme, "198.51.100.0/24")
	refresh()
	f.wantBlocks(t, "before ten minutes are over", 1, "198.51.100.0/24")
	dispatchertest.Must(t, f.Redis(t).ZAdd(t.Context(), key, goredis.Z{Member: acme, Score: before(refreshAge)}).Err())
	refresh()
	refresh()
	f.wantBlocks(t, "after ten minutes", 2, "198.51.100.0/24")
	if got := f.reports.Allowlists()[1].Refused[0].Requests; got != 2 {
		t.Errorf("%d requests, want 2", got)
	}
	dispatchertest.Must(t, f.Redis(t).ZAdd(t.Context(), key+":"+acme+":seen", goredis.Z{Member: "198.51.100.0/24", Score: before(2 * refreshAge)}).Err())
	dispatchertest.Must(t, f.Redis(t).ZAdd(t.Context(), key, goredis.Z{Member: acme, Score: before(refreshAge)}).Err())
	refresh()
	f.wantBlocks(t, "without a request", 2, "198.51.100.0/24")
	dispatchertest.Must(t, f.Redis(t).Del(t.Context(), key+":"+acme, key+":"+acme+":seen").Err()) // they end after a day
	r.round(t)
	f.wantBlocks(t, "after a day", 3, "")
	r.round(t)
	if n := f.Redis(t).Exists(t.Context(), key).Val(); n != 0 {
		t.Error("the merchant is still listed")
	}
}

// The status has the blocks with the most requests. All others are one number.
func TestAllowlistStatus_Most(t *testing.T) {
	var addresses blocked.Addresses
	for i := range blocked.MaxBlocks {
		addresses.Blocks = append(addresses.Blocks, blocked.Block{Block: fmt.Sprintf("10.0.%d.0/24", i), Requests: int64(100 - i)})
	}
	allowed := blocked.Block{Block: "203.0.113.0/24", Requests: 1000}
	addresses.Blocks = append([]blocked.Block{allowed}, append(addresses.Blocks, blocked.Block{Block: blocked.OtherBlocks, Requests: 7})...)
	status := allowlistStatus(list("203.0.113.7/32"), addresses)
	if n := len(status.Refused); n != maxShownBlocks || status.Refused[0].Block != "10.0.0.0/24" || status.Refused[n-1].Requests != 85 {
		t.Errorf("%+v", status.Refused)
	}
	var sum int64
	for i := maxShownBlocks; i < blocked.MaxBlocks; i++ {
		sum += int64(100 - i)
	}
	if status.OtherRequests != sum+7 {
		t.Errorf("%d other requests, want %d", status.OtherRequests, sum+7)
	}
	if status := allowlistStatus(nil, addresses); status != nil {
		t.Errorf("without a list: %+v", status)
	}
}

// A caller with one good key and many addresses uses up the budget of that merchant only.
func TestReportBlocked_BudgetOfAMerchant(t *testing.T) {
	f := newFixture(t)
	acme, books := f.guarded(7, "203.0.113.0/24").MerchantID, f.guarded(7, "203.0.113.0/24").MerchantID
	r := f.reporter()
	for i := range 3 * outbox.ReportBurst {
		f.block(t, acme, fmt.Sprintf("10.0.%d.0/24", i))
		r.round(t)
	}
	if n := len(f.reports.Allowlists()); n != outbox.ReportBurst {
		t.Errorf("%d reports, want %d", n, outbox.ReportBurst)
	}
	f.block(t, books, "198.51.100.0/24")
	r.round(t)
	f.wantBlocks(t, "another merchant", outbox.ReportBurst+1, "198.51.100.0/24")
}

// A namespace whose endpoints all flap, and in which many merchants refuse addresses, delays the
// blocked addresses of another by no round.
func TestReportBlocked_FlappingNeighbour(t *testing.T) {
	f := newFixture(t)
	r := f.reporter()
	for range 2 * changesPerRound {
		neighbour := f.guarded(7, "203.0.113.0/24")
		neighbour.URL, neighbour.Target, neighbour.Merchant.Namespace = "https://shop.example/", "0123456789abcdef", "a-neighbour"
		f.Index.Put(neighbour)
		f.Disable(t, neighbour)
		f.block(t, neighbour.MerchantID, "198.51.100.0/24")
	}
	f.block(t, f.guarded(7, "203.0.113.0/24").MerchantID, "192.0.2.0/24")
	for round := range 3 {
		dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
		if health, lists := len(f.reports.All()), len(f.reports.Allowlists()); health > (round+1)*changesPerRound || lists > (round+1)*blockedPerRound {
			t.Errorf("%d reports of health and %d of blocked addresses after round %d", health, lists, round+1)
		}
	}
	first := slices.IndexFunc(f.reports.Allowlists(), func(list *v1alpha1.AllowlistStatus) bool { return blockNames(list) == "192.0.2.0/24" })
	if first < 0 || first > 1 {
		t.Errorf("the victim's blocked addresses are report %d", first)
	}
}

// Ten namespaces of a neighbour have changed blocks in each round, as many as a round reports, and an eleventh one, whose name is behind
// the victim's, in the buckets that are read before. The victim's blocks are reported all the same.
func TestReportBlocked_TurnsOfEachGroup(t *testing.T) {
	f := newFixture(t)
	r := f.reporter()
	add := func(bucket session.Bucket, namespace, block string) {
		merchant := f.guarded(bucket, "203.0.113.0/24")
		merchant.Merchant.Namespace = namespace
		f.Index.Put(merchant)
		f.block(t, merchant.MerchantID, block)
	}
	add(blockedBuckets, "victim", "192.0.2.0/24")
	for round := range 3 {
		for bucket := range session.Bucket(blockedBuckets) {
			add(bucket, "zz-neighbour", "198.51.100.0/24")
		}
		for n := range blockedPerRound {
			add(blockedBuckets, fmt.Sprintf("a-neighbour-%d", n), "198.51.100.0/24")
		}
		for bucket := session.Bucket(blockedBuckets + 1); bucket < 2*blockedBuckets; bucket++ {
			add(bucket, "a-neighbour-0", "198.51.100.0/24")
		}
		for range 2 {
			dispatchertest.Must(t, dispatchertest.Second(r.reportHealth(t.Context())))
		}
		if slices.ContainsFunc(f.reports.Allowlists(), func(list *v1alpha1.AllowlistStatus) bool { return blockNames(list) == "192.0.2.0/24" }) {
			return
		}
		t.Logf("after round %d the victim's blocks are not reported", round)
	}
	t.Error("the victim's blocks are not reported")
}

func TestReportAllowlist(t *testing.T) {
	c := dispatchertest.NewCluster(t)
	acme := c.Merchant(t, "acme", "https://shop.example/hooks")
	r := newKubeWriter(t)
	dispatchertest.Must(t, r.Report(t.Context(), dispatchertest.Endpoint(acme), sick))
	want := &v1alpha1.AllowlistStatus{
		Refused: []v1alpha1.RefusedBlock{
			{Block: "203.0.113.0/24", Requests: 7, LastSeen: metav1.NewTime(at.Add(time.Hour))},
			{Block: "2001:db8::/48", KeyID: "abcdefgh2345", Requests: 1, LastSeen: metav1.NewTime(at)},
		},
		OtherRequests: 3,
	}
	sameTime := cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })
	dispatchertest.Must(t, r.ReportAllowlist(t.Context(), dispatchertest.Endpoint(acme), want))
	dispatchertest.Must(t, r.Report(t.Context(), dispatchertest.Endpoint(acme), well))
	var got v1alpha1.Merchant
	dispatchertest.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(acme), &got))
	if diff := cmp.Diff(want, got.Status.Allowlist, sameTime); diff != "" || got.Status.Webhook == nil {
		t.Errorf("status.webhook %+v, status.allowlist (-want +got):\n%s", got.Status.Webhook, diff)
	}
	dispatchertest.Must(t, r.ReportAllowlist(t.Context(), dispatchertest.Endpoint(acme), nil))
	dispatchertest.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(acme), &got))
	if got.Status.Allowlist != nil || got.Status.Webhook == nil {
		t.Errorf("in the end: %+v", got.Status)
	}
}
