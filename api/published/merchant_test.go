package published_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestNewMerchantRecord_WholeSpec(t *testing.T) {
	want := merchantRecord()
	want.MerchantID = "45tolpnyxhz4"
	got := published.NewMerchantRecord(&v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "acme-coffee", UID: "5e1f0a52-7d8b-4bd0-93a4-4b2c56d0a9b1", Generation: 4},
		Spec: v1alpha1.MerchantSpec{
			DisplayName:     want.DisplayName,
			State:           want.State,
			Currency:        want.Currency,
			TimeZone:        want.TimeZone,
			IPAllowlist:     want.IPAllowlist,
			IPAllowlistMode: want.IPAllowlistMode,
			RateLimit:       want.RateLimit,
			Sessions:        want.Sessions,
			Page:            want.Page,
			Webhook:         &want.Webhook.Webhook,
		},
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAllowlist(t *testing.T) {
	record := merchantRecord()
	blocks, err := published.ParseAllowlist(record.IPAllowlist)
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{
		netip.MustParsePrefix("203.0.113.0/24"),
		netip.MustParsePrefix("2001:db8::/48"),
		netip.MustParsePrefix("198.51.100.7/32"),
	}
	if diff := cmp.Diff(want, blocks, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	record.IPAllowlist = nil
	if blocks, err := published.ParseAllowlist(record.IPAllowlist); err != nil || len(blocks) != 0 {
		t.Errorf("no allowlist gives %v, %v; want no blocks", blocks, err)
	}
}

// Another URL is another target, and so is a resumed endpoint; another signing secret is none.
func TestWebhook_Target(t *testing.T) {
	const url = "https://shop.example/hooks"
	hook := published.Webhook{Webhook: v1alpha1.Webhook{URL: url}}
	for name, test := range map[string]struct {
		webhook published.Webhook
		same    bool
	}{
		"another URL":    {published.Webhook{Webhook: v1alpha1.Webhook{URL: url + "/2"}}, false},
		"resumed":        {published.Webhook{Webhook: v1alpha1.Webhook{URL: url, ResumeTrigger: "1"}}, false},
		"rotated secret": {published.Webhook{Webhook: v1alpha1.Webhook{URL: url, RotationTrigger: "1"}}, true},
		"removed":        {published.Webhook{RemovedAt: time.Now()}, false},
	} {
		if same := test.webhook.Target() == hook.Target(); same != test.same {
			t.Errorf("%s: the same target: %t", name, same)
		}
	}
	if none := (*published.Webhook)(nil).Target(); none != "" {
		t.Errorf("the target of no webhook is %q", none)
	}
}

// FuzzParseBlock holds that a block which is read lets in the addresses it seems to, and no other.
func FuzzParseBlock(f *testing.F) {
	for _, text := range []string{
		"203.0.113.0/24", "198.51.100.7", "2001:db8::/48", "::/0", "0.0.0.0/0", "203.0.113.1/24", "::ffff:192.0.2.1", "::ffff:0:0/96",
		"fe80::1%eth0", "192.0.2.1/33", "192.0.2.1/-1", "192.0.2.01", "192.0.2.0/024", "/", "", " 192.0.2.1",
	} {
		f.Add(text, []byte{192, 0, 2, 1})
	}
	parse := func(text string) (netip.Prefix, error) {
		blocks, err := published.ParseAllowlist([]v1alpha1.IPBlock{v1alpha1.IPBlock(text)})
		if err != nil {
			return netip.Prefix{}, err
		}
		return blocks[0], nil
	}
	f.Fuzz(func(t *testing.T, text string, raw []byte) {
		block, err := parse(text)
		if err != nil {
			return
		}
		again, err := parse(block.String())
		if err != nil || again != block {
			t.Fatalf("%q is %s, and that is %s, %v", text, block, again, err)
		}
		if block.Addr().Is4In6() || block.Addr().Zone() != "" || block.Masked() != block {
			t.Fatalf("%q is %s, which means something else than it says", text, block)
		}
		address, ok := netip.AddrFromSlice(raw)
		if !ok || address.Is4() != block.Addr().Is4() {
			return
		}
		prefix, err := address.Prefix(block.Bits())
		if err != nil || block.Contains(address) != (prefix == block) {
			t.Fatalf("%s in %s: %v", address, block, block.Contains(address))
		}
	})
}
