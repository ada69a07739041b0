package allowlist

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func parse(t *testing.T, entries ...v1alpha1.IPBlock) List {
	t.Helper()
	list, err := Parse(entries)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTest(t *testing.T) {
	list := parse(t, "203.0.113.0/24", "2001:db8::/48", "198.51.100.7", "fe80::1")
	for address, want := range map[string]bool{
		"203.0.113.0": true, "203.0.113.255": true, "203.0.114.0": false, "198.51.100.7": true, "198.51.100.8": false,
		"2001:db8::1": true, "2001:DB8:0:ffff::1": true, "2001:db8:1::1": false,
		"::ffff:203.0.113.7": true, "::ffff:203.0.114.7": false, "fe80::1%eth0": true, "fe80::2%eth0": false,
		" 203.0.113.7\t": true, "203.0.113.7:443": true, "[2001:db8::1]:443": true,
	} {
		if got, err := list.Test(address); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", address, got, err, want)
		}
	}
	for _, address := range []string{"", "shop.example", "203.0.113", "203.0.113.007", "203.0.113.0/24", "203.0.113.7, 203.0.113.8", "[2001:db8::1]"} {
		if allowed, err := list.Test(address); err == nil || allowed {
			t.Errorf("%q is taken for an address", address)
		}
	}
	if allowed, err := parse(t).Test("192.0.2.1"); err != nil || !allowed {
		t.Errorf("no list refuses an address: %v", err)
	}
	if _, err := Parse([]v1alpha1.IPBlock{"203.0.113.0/24", "203.0.113.7/24"}); err == nil {
		t.Error("a block with host bits was accepted")
	}
}

func TestBlockOf(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.7": "203.0.113.0/24", "255.255.255.255": "255.255.255.0/24", "2001:db8:1:2::3": "2001:db8:1::/48", "::1": "::/48",
	} {
		if got := BlockOf(netip.MustParseAddr(address)); got != netip.MustParsePrefix(want) {
			t.Errorf("%s is in %s, want %s", address, got, want)
		}
	}
}

func TestOverlaps(t *testing.T) {
	list := parse(t, "203.0.113.7", "10.0.0.0/8", "2001:db8::/64")
	for block, want := range map[string]bool{
		"203.0.113.0/24": true, "203.0.114.0/24": false, "10.1.2.0/24": true, "2001:db8::/48": true, "2001:db8:1::/48": false,
	} {
		if got := list.Overlaps(netip.MustParsePrefix(block)); got != want {
			t.Errorf("%s: %v, want %v", block, got, want)
		}
	}
	if !parse(t).Overlaps(netip.MustParsePrefix("203.0.113.0/24")) {
		t.Error("no list refuses a block")
	}
}

func TestTheFingerprintIsOfTheSet(t *testing.T) {
	list := parse(t, "203.0.113.0/24", "198.51.100.7")
	same := slices.Clone(list)
	slices.Reverse(same)
	if list.Fingerprint() != same.Fingerprint() {
		t.Error("the order of the entries changes it")
	}
	for _, other := range []List{parse(t), list[:1], parse(t, "203.0.113.0/24", "198.51.100.8")} {
		if list.Fingerprint() == other.Fingerprint() {
			t.Errorf("%v has the one of %v", other, list)
		}
	}
}
