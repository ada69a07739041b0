package dispatcher

import (
	"errors"
	"fmt"
	"net/netip"
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
	"github.com/merchant-operator/merchant-operator/internal/store"
)

func list(blocks ...string) allowlist.List {
	var all allowlist.List
	for _, block := range blocks {
		all = append(all, netip.MustParsePrefix(block))
	}
	return all
}

// guarded is a merchant with an allowlist, but without a webhook.
func (f fixture) guarded(bucket session.Bucket, blocks ...string) endpoints.Endpoint {
	endpoint := f.endpointAt("", bucket)
	f.index.allow(endpoint.MerchantID, list(blocks...))
	return endpoint
}

// block counts requests from blocks, as an API replica does that knows the present allowlist.
func (f fixture) block(t *testing.T, merchantID string, blocks ...string) {
	t.Helper()
	requests := map[string]int64{}
	for _, block := range blocks {
		requests[f.index.Allowlist(merchantID).Block(netip.MustParsePrefix(block).Addr())]++
	}
	must(t, f.store.AddBlocked(t.Context(), merchantID, requests))
}

// round lets the dispatcher look at all buckets.
func (d *dispatcher) round(t *testing.T) {
	t.Helper()
	for range session.Buckets / blockedBuckets {
		_, err := d.reportHealth(t.Context())
		must(t, err)
	}
}

// wantBlocks compares the blocks that were reported last.
func (f fixture) wantBlocks(t *testing.T, desc string, reports int, want string) {
	t.Helper()
	all := f.reports.allowlists()
	if len(all) != reports {
		t.Fatalf("%s: %d reports, want %d", desc, len(all), reports)
	}
	if got := blocksOf(all[len(all)-1]); got != want {
		t.Errorf("%s: reported %q, want %q", desc, got, want)
	}
}

// A block is reported once, whatever number of dispatchers and requests there are, and removed when the list is changed for it. What the
// changed list still refuses comes back.
func TestReportBlocked_ChangedList(t *testing.T) {
	f := newFixture(t)
	acme := f.guarded(7, "203.0.113.0/24").MerchantID
	first, second := f.dispatcher(t), f.dispatcher(t)
	first.prepare()
	second.prepare()
	both := func() { first.round(t); second.round(t) }
	both()
	if n := len(f.reports.allowlists()); n != 0 {
		t.Fatalf("%d reports of nothing", n)
	}
	f.block(t, acme, "198.51.100.0/24", "192.0.2.0/24")
	both()
	f.wantBlocks(t, "two blocks", 1, "192.0.2.0/24 198.51.100.0/24")
	f.block(t, acme, "198.51.100.0/24")
	both()
	f.wantBlocks(t, "another request", 1, "192.0.2.0/24 198.51.100.0/24")
	f.index.allow(acme, list("203.0.113.0/24", "198.51.100.7/32"))
	both()
	f.wantBlocks(t, "the list was changed for one", 2, "192.0.2.0/24")
	f.block(t, acme, "198.51.100.0/24")
	both()
	f.wantBlocks(t, "and refuses another address of that block", 3, "192.0.2.0/24 198.51.100.0/24")
	f.index.allow(acme, list("0.0.0.0/0"))
	both()
	f.wantBlocks(t, "everything is allowed", 4, "")
	f.index.allow(acme, nil)
	both()
	f.wantBlocks(t, "there is no list", 4, "")
	f.index.allow(acme, list("203.0.113.0/24"))
	both()
	f.wantBlocks(t, "what was counted under the same list shows again", 5, "192.0.2.0/24 198.51.100.0/24")
}

// What is known of a deleted merchant is forgotten. One that is not published yet, or without a tombstone, may come.
func TestReportBlocked_DeletedMerchant(t *testing.T) {
	f := newFixture(t)
	d := f.dispatcher(t)
	d.prepare()
	deleted, unknown, gone := f.guarded(1, "203.0.113.0/24"), newMerchantID(1), f.guarded(1, "203.0.113.0/24")
	for _, id := range []string{deleted.MerchantID, unknown, gone.MerchantID} {
		f.block(t, id, "198.51.100.0/24")
	}
	f.index.put(endpoints.Endpoint{State: endpoints.Withdrawn, MerchantID: deleted.MerchantID})
	f.reports.setFail(errMerchantGone) // its tombstone comes soon
	d.round(t)
	d.round(t)
	found, _, err := f.store.Blocked(t.Context(), 1)
	must(t, err)
	kept := map[string]string{}
	for _, blocked := range found {
		kept[blocked.MerchantID] = blocked.Reported
	}
	if diff := cmp.Diff(map[string]string{unknown: "", gone.MerchantID: "198.51.100.0/24"}, kept); diff != "" {
		t.Errorf("kept, with what was reported (-want +got):\n%s", diff)
	}
}

// What fails is reported again. Counts are refreshed after ten minutes, if they changed.
func TestReportBlocked_RetryAndRefresh(t *testing.T) {
	f := newFixture(t)
	acme := f.guarded(7, "203.0.113.0/24").MerchantID
	key := tag(session.BucketOf(acme)) + "blocked"
	d := f.dispatcher(t)
	d.prepare()
	f.block(t, acme, "198.51.100.0/24")
	f.reports.setFail(errors.New("down"))
	d.round(t)
	f.reports.setFail(nil)
	d.round(t)
	f.wantBlocks(t, "at first", 1, "198.51.100.0/24")

	refresh := func() {
		d.nextRefresh = 7
		_, err := d.refreshHealth(t.Context())
		must(t, err)
	}
	before := func(age time.Duration) float64 {
		return float64(f.redis(t).Time(t.Context()).Val().Add(-age).UnixMilli())
	}
	f.block(t, acme, "198.51.100.0/24")
	refresh()
	f.wantBlocks(t, "before ten minutes are over", 1, "198.51.100.0/24")
	must(t, f.redis(t).ZAdd(t.Context(), key, goredis.Z{Member: acme, Score: before(refreshAge)}).Err())
	refresh()
	refresh()
	f.wantBlocks(t, "after ten minutes", 2, "198.51.100.0/24")
	if got := f.reports.allowlists()[1].Refused[0].Requests; got != 2 {
		t.Errorf("%d requests, want 2", got)
	}
	must(t, f.redis(t).ZAdd(t.Context(), key+":"+acme+":seen", goredis.Z{Member: "198.51.100.0/24", Score: before(2 * refreshAge)}).Err())
	must(t, f.redis(t).ZAdd(t.Context(), key, goredis.Z{Member: acme, Score: before(refreshAge)}).Err())
	refresh()
	f.wantBlocks(t, "without a request", 2, "198.51.100.0/24")
	must(t, f.redis(t).Del(t.Context(), key+":"+acme, key+":"+acme+":seen").Err()) // they end after a day
	d.round(t)
	f.wantBlocks(t, "after a day", 3, "")
	d.round(t)
	if n := f.redis(t).Exists(t.Context(), key).Val(); n != 0 {
		t.Error("the merchant is still listed")
	}
}

// The status has the blocks with the most requests. All others are one number.
func TestAllowlistStatus_Most(t *testing.T) {
	var blocked store.Blocked
	for i := range store.MaxBlocks {
		blocked.Blocks = append(blocked.Blocks, store.BlockedBlock{Block: fmt.Sprintf("10.0.%d.0/24", i), Requests: int64(100 - i)})
	}
	allowed := store.BlockedBlock{Block: "203.0.113.0/24", Requests: 1000}
	blocked.Blocks = append([]store.BlockedBlock{allowed}, append(blocked.Blocks, store.BlockedBlock{Block: store.OtherBlocks, Requests: 7})...)
	status := allowlistStatus(list("203.0.113.7/32"), blocked)
	if n := len(status.Refused); n != maxShownBlocks || status.Refused[0].Block != "10.0.0.0/24" || status.Refused[n-1].Requests != 85 {
		t.Errorf("%+v", status.Refused)
	}
	var sum int64
	for i := maxShownBlocks; i < store.MaxBlocks; i++ {
		sum += int64(100 - i)
	}
	if status.OtherRequests != sum+7 {
		t.Errorf("%d other requests, want %d", status.OtherRequests, sum+7)
	}
	if status := allowlistStatus(nil, blocked); status != nil {
		t.Errorf("without a list: %+v", status)
	}
}

// Whoever has one good key and many addresses uses up the budget of that merchant only.
func TestReportBlocked_BudgetOfAMerchant(t *testing.T) {
	f := newFixture(t)
	acme, books := f.guarded(7, "203.0.113.0/24").MerchantID, f.guarded(7, "203.0.113.0/24").MerchantID
	d := f.dispatcher(t)
	d.prepare()
	for i := range 3 * outbox.ReportBurst {
		f.block(t, acme, fmt.Sprintf("10.0.%d.0/24", i))
		d.round(t)
	}
	if n := len(f.reports.allowlists()); n != outbox.ReportBurst {
		t.Errorf("%d reports, want %d", n, outbox.ReportBurst)
	}
	f.block(t, books, "198.51.100.0/24")
	d.round(t)
	f.wantBlocks(t, "another merchant", outbox.ReportBurst+1, "198.51.100.0/24")
}

// Health and blocked addresses of all merchants share the budget of a round. Health comes first, and blocked addresses in the next rounds.
func TestReportBlocked_BudgetOfARound(t *testing.T) {
	f := newFixture(t)
	const unhealthy, guarded = changesPerRound - 5, changesPerRound
	d := f.dispatcher(t)
	d.prepare()
	for range unhealthy {
		f.disable(t, f.endpointAt("https://shop.example/", 7))
	}
	for range guarded {
		f.block(t, f.guarded(9, "203.0.113.0/24").MerchantID, "198.51.100.0/24")
	}
	for round, want := range []int{changesPerRound, unhealthy + guarded, unhealthy + guarded} {
		_, err := d.reportHealth(t.Context())
		must(t, err)
		if n := len(f.reports.all()) + len(f.reports.allowlists()); n != want || len(f.reports.all()) != unhealthy {
			t.Errorf("%d reports after round %d, %d of health; want %d", n, round+1, len(f.reports.all()), want)
		}
	}
}

func TestReportAllowlist(t *testing.T) {
	c := newCluster(t)
	acme := c.merchant(t, "acme", "https://shop.example/hooks")
	r := newReporter(t)
	must(t, r.Report(t.Context(), endpointOf(acme), sick))
	want := &v1alpha1.AllowlistStatus{
		Refused: []v1alpha1.RefusedBlock{
			{Block: "203.0.113.0/24", Requests: 7, LastSeen: metav1.NewTime(at.Add(time.Hour))},
			{Block: "2001:db8::/48", Requests: 1, LastSeen: metav1.NewTime(at)},
		},
		OtherRequests: 3,
	}
	sameTime := cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })
	must(t, r.ReportAllowlist(t.Context(), endpointOf(acme), want))
	must(t, r.Report(t.Context(), endpointOf(acme), well))
	var got v1alpha1.Merchant
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(acme), &got))
	if diff := cmp.Diff(want, got.Status.Allowlist, sameTime); diff != "" || got.Status.Webhook == nil {
		t.Errorf("status.webhook %+v, status.allowlist (-want +got):\n%s", got.Status.Webhook, diff)
	}
	must(t, r.ReportAllowlist(t.Context(), endpointOf(acme), nil))
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(acme), &got))
	if got.Status.Allowlist != nil || got.Status.Webhook == nil {
		t.Errorf("in the end: %+v", got.Status)
	}
}
