package allowlist

import (
	"net/netip"
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
		" 203.0.113.7\t": true, "203.0.113.7:443": true, "[2001:db8::1]:443": true, "[2001:db8::1]": true,
	} {
		if got, err := list.Test(address); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", address, got, err, want)
		}
	}
	for _, address := range []string{"", "shop.example", "203.0.113", "203.0.113.007", "203.0.113.0/24", "203.0.113.7, 203.0.113.8", "[203.0.113.7]"} {
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

func TestBlock(t *testing.T) {
	list := parse(t, "192.0.2.1")
	for address, want := range map[string]string{
		"203.0.113.7": "203.0.113.0/24", "255.255.255.255": "255.255.255.0/24", "2001:db8:1:2::3": "2001:db8:1::/48", "::1": "::/48",
	} {
		if got := list.Block(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is in %q, want %q", address, got, want)
		}
	}
}

// A block that was counted under another list is one of this list only if both allow the same part of it.
func TestParseBlock(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.9")
	for name, test := range map[string]struct {
		counted, present List
		want             bool
	}{
		"the same list":                    {parse(t, "10.0.0.0/8"), parse(t, "10.0.0.0/8"), true},
		"changed elsewhere":                {parse(t, "10.0.0.0/8"), parse(t, "192.0.2.0/24", "2001:db8::/48"), true},
		"the block is allowed":             {parse(t, "10.0.0.0/8"), parse(t, "10.0.0.0/8", "203.0.113.0/24"), false},
		"an address of it is allowed":      {parse(t, "10.0.0.0/8"), parse(t, "10.0.0.0/8", "203.0.113.7"), false},
		"an address of it was allowed":     {parse(t, "203.0.113.7"), parse(t, "203.0.113.7"), true},
		"and another entry was added":      {parse(t, "203.0.113.7"), parse(t, "10.0.0.0/8", "203.0.113.7"), true},
		"in another order":                 {parse(t, "203.0.113.7", "203.0.113.8"), parse(t, "203.0.113.8", "203.0.113.7"), true},
		"another address of it is allowed": {parse(t, "203.0.113.7"), parse(t, "203.0.113.8"), false},
		"everything is allowed":            {parse(t, "10.0.0.0/8"), parse(t, "0.0.0.0/0"), false},
		"there is no list any more":        {parse(t, "10.0.0.0/8"), nil, false},
	} {
		block, shown := test.present.ParseBlock(test.counted.Block(address))
		if shown != test.want || block != netip.MustParsePrefix("203.0.113.0/24") {
			t.Errorf("%s: %s, %v; want %v", name, block, shown, test.want)
		}
	}
	for _, text := range []string{"", "other", "203.0.113.0", "203.0.113.0/33", "203.0.113.0/25", "203.0.113.7/24", " 203.0.113.0/24", "203.0.113.0/24 "} {
		if _, ok := parse(t, "10.0.0.0/8").ParseBlock(text); ok {
			t.Errorf("%q is a block", text)
		}
	}
}

// A block of a key's list is none of the merchant's, and the other way round.
func TestParseKeyBlock(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.8")
	text := KeyBlock(address, "abcdefgh2345")
	if block, keyID, ok := ParseKeyBlock(text); block.String() != "203.0.113.0/24" || keyID != "abcdefgh2345" || !ok {
		t.Errorf("%s: %s, %s, %t", text, block, keyID, ok)
	}
	for _, list := range []List{nil, parse(t, "198.51.100.7"), parse(t, "203.0.113.7")} {
		if _, ok := list.ParseBlock(text); ok {
			t.Errorf("%s counts as a block of the merchant's list %v", text, list)
		}
		if _, _, ok := ParseKeyBlock(list.Block(address)); ok {
			t.Errorf("%s counts as a block of a key's list", list.Block(address))
		}
	}
}

func TestCovers(t *testing.T) {
	for name, row := range map[string]struct {
		list, other List
		want        bool
	}{
		"any address, any address":         {parse(t), parse(t), true},
		"any address, one":                 {parse(t), parse(t, "203.0.113.7"), true},
		"one address, any":                 {parse(t, "203.0.113.7"), parse(t), false},
		"every address in words, any":      {parse(t, "0.0.0.0/0", "::/0"), parse(t), true},
		"all of IPv4, any":                 {parse(t, "0.0.0.0/0"), parse(t), false},
		"the same":                         {parse(t, "203.0.113.0/24"), parse(t, "203.0.113.0/24"), true},
		"a block, one address of it":       {parse(t, "203.0.113.0/24"), parse(t, "203.0.113.255"), true},
		"a block, the block around it":     {parse(t, "203.0.113.0/25"), parse(t, "203.0.113.0/24"), false},
		"two halves, the whole":            {parse(t, "203.0.113.128/25", "203.0.113.0/25"), parse(t, "203.0.113.0/24"), true},
		"a block but for its last address": {parse(t, "203.0.113.0/31", "203.0.113.2"), parse(t, "203.0.113.0/30"), false},
		"another block":                    {parse(t, "203.0.113.0/24"), parse(t, "198.51.100.0/24"), false},
		"one of two":                       {parse(t, "203.0.113.0/24"), parse(t, "203.0.113.0/24", "2001:db8::/48"), false},
		"an IPv6 block, one address of it": {parse(t, "2001:db8::/48"), parse(t, "2001:db8::1"), true},
		"an IPv6 address, the block of it": {parse(t, "2001:db8::"), parse(t, "2001:db8::/127"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.list.Covers(row.other); got != row.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
