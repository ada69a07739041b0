package dispatcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// refuse counts requests from blocks, as an API replica does that knows the present allowlist.
func (f fixture) refuse(t *testing.T, merchantID string, blocks ...string) {
	t.Helper()
	refusals := store.Refusals{MerchantID: merchantID, Allowlist: f.index.Allowlist(merchantID).Fingerprint(), Blocks: map[netip.Prefix]int64{}}
	for _, block := range blocks {
		refusals.Blocks[netip.MustParsePrefix(block)]++
	}
	_, err := f.store.AddRefusals(t.Context(), refusals)
	must(t, err)
}

// round lets the dispatcher look at all buckets.
func (d *dispatcher) round(t *testing.T) {
	t.Helper()
	for range session.Buckets / refusalBuckets {
		_, err := d.reportHealth(t.Context())
		must(t, err)
	}
}

// wantRefused compares the blocks that were reported last.
func (f fixture) wantRefused(t *testing.T, desc string, reports int, want string) {
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
func TestRefusedBlocksAreReported(t *testing.T) {
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
	f.refuse(t, acme, "198.51.100.0/24", "192.0.2.0/24")
	both()
	f.wantRefused(t, "two blocks", 1, "192.0.2.0/24 198.51.100.0/24")
	f.refuse(t, acme, "198.51.100.0/24")
	both()
	f.wantRefused(t, "another request", 1, "192.0.2.0/24 198.51.100.0/24")
	f.index.allow(acme, list("203.0.113.0/24", "198.51.100.7/32"))
	both()
	f.wantRefused(t, "the list was changed for one", 2, "192.0.2.0/24")
	f.refuse(t, acme, "198.51.100.0/24")
	both()
	f.wantRefused(t, "and refuses another address of that block", 3, "192.0.2.0/24 198.51.100.0/24")
	f.index.allow(acme, list("0.0.0.0/0"))
	both()
	f.wantRefused(t, "everything is allowed", 4, "")
	both()
	if found, _, err := f.store.Refusals(t.Context(), 7); err != nil || len(found) != 0 {
		t.Errorf("still kept: %+v, %v", found, err)
	}
}

func TestRefusalsOfADeletedMerchantAreForgotten(t *testing.T) {
	f := newFixture(t)
	d := f.dispatcher(t)
	d.prepare()
	deleted, unknown, gone := f.guarded(1, "203.0.113.0/24"), newMerchantID(1), f.guarded(1, "203.0.113.0/24")
	for _, id := range []string{deleted.MerchantID, unknown, gone.MerchantID} {
		f.refuse(t, id, "198.51.100.0/24")
	}
	f.index.put(endpoints.Endpoint{State: endpoints.Withdrawn, MerchantID: deleted.MerchantID})
	f.reports.setFail(errMerchantGone) // its tombstone comes soon
	d.round(t)
	d.round(t)
	found, _, err := f.store.Refusals(t.Context(), 1)
	must(t, err)
	kept := map[string]string{}
	for _, refusals := range found {
		kept[refusals.MerchantID] = refusals.Reported.Blocks
	}
	if diff := cmp.Diff(map[string]string{unknown: "", gone.MerchantID: "198.51.100.0/24"}, kept); diff != "" {
		t.Errorf("kept, with what was reported (-want +got):\n%s", diff)
	}
}

// What fails is reported again. Counts are refreshed after ten minutes, if they changed.
func TestRefusalsAreRepeatedAndRefreshed(t *testing.T) {
	f := newFixture(t)
	acme := f.guarded(7, "203.0.113.0/24").MerchantID
	d := f.dispatcher(t)
	d.prepare()
	f.refuse(t, acme, "198.51.100.0/24")
	f.reports.setFail(errors.New("down"))
	d.round(t)
	f.reports.setFail(nil)
	d.round(t)
	f.wantRefused(t, "at first", 1, "198.51.100.0/24")

	refresh := func() {
		d.nextRefresh = 7
		_, err := d.refreshHealth(t.Context())
		must(t, err)
	}
	f.refuse(t, acme, "198.51.100.0/24")
	refresh()
	f.wantRefused(t, "before ten minutes are over", 1, "198.51.100.0/24")
	f.changeRefusals(t, acme, func(record map[string]any) {
		reported := record["r"].(map[string]any)
		reported["t"] = reported["t"].(float64) - float64(refreshAge.Milliseconds())
	})
	refresh()
	refresh()
	f.wantRefused(t, "after ten minutes", 2, "198.51.100.0/24")
	if got := f.reports.allowlists()[1].Refused[0].Requests; got != 2 {
		t.Errorf("%d requests, want 2", got)
	}
	f.changeRefusals(t, acme, func(record map[string]any) {
		entry := record["b"].(map[string]any)["198.51.100.0/24"].(map[string]any)
		entry["l"] = entry["l"].(float64) - float64(store.RefusalsShown.Milliseconds())
	})
	d.round(t)
	f.wantRefused(t, "after a day", 3, "")
}

// changeRefusals changes what Redis holds.
func (f fixture) changeRefusals(t *testing.T, merchantID string, change func(map[string]any)) {
	t.Helper()
	key := tag(session.BucketOf(merchantID)) + "refusals:" + merchantID
	var record map[string]any
	must(t, json.Unmarshal([]byte(f.redis(t).Get(t.Context(), key).Val()), &record))
	change(record)
	text, err := json.Marshal(record)
	must(t, err)
	must(t, f.redis(t).Set(t.Context(), key, text, 0).Err())
}

// Whoever has one good key and many addresses uses up the budget of that merchant only.
func TestManyBlocksOfOneMerchantHaveABudget(t *testing.T) {
	f := newFixture(t)
	acme, books := f.guarded(7, "203.0.113.0/24").MerchantID, f.guarded(7, "203.0.113.0/24").MerchantID
	d := f.dispatcher(t)
	d.prepare()
	for i := range 3 * outbox.ReportBurst {
		f.refuse(t, acme, fmt.Sprintf("10.0.%d.0/24", i))
		d.round(t)
	}
	if n := len(f.reports.allowlists()); n != outbox.ReportBurst {
		t.Errorf("%d reports, want %d", n, outbox.ReportBurst)
	}
	f.refuse(t, books, "198.51.100.0/24")
	d.round(t)
	f.wantRefused(t, "another merchant", outbox.ReportBurst+1, "198.51.100.0/24")
}

// Health and refusals of all merchants share the budget of a round. Health comes first, and refusals in the next rounds.
func TestRefusalsAndHealthShareTheBudgetOfARound(t *testing.T) {
	f := newFixture(t)
	const unhealthy, guarded = changesPerRound - 5, changesPerRound
	d := f.dispatcher(t)
	d.prepare()
	for range unhealthy {
		f.disable(t, f.endpointAt("https://shop.example/", 7))
	}
	for range guarded {
		f.refuse(t, f.guarded(9, "203.0.113.0/24").MerchantID, "198.51.100.0/24")
	}
	for round, want := range []int{changesPerRound, unhealthy + guarded, unhealthy + guarded} {
		_, err := d.reportHealth(t.Context())
		must(t, err)
		if n := len(f.reports.all()) + len(f.reports.allowlists()); n != want || len(f.reports.all()) != unhealthy {
			t.Errorf("%d reports after round %d, %d of health; want %d", n, round+1, len(f.reports.all()), want)
		}
	}
}

func TestTheStatusSaysWhatIsRefused(t *testing.T) {
	c := newCluster(t)
	acme := c.merchant(t, "acme", "https://shop.example/hooks")
	r := newReporter(t)
	must(t, r.Report(t.Context(), endpointOf(acme), sick))
	want := &v1alpha1.AllowlistStatus{
		Refused: []v1alpha1.RefusedBlock{
			{Block: "203.0.113.0/24", Requests: 7, FirstSeen: metav1.NewTime(at), LastSeen: metav1.NewTime(at.Add(time.Hour))},
			{Block: "2001:db8::/48", Requests: 1, FirstSeen: metav1.NewTime(at), LastSeen: metav1.NewTime(at)},
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
