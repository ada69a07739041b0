package egress_test

import (
	"net/netip"
	"testing"
)

// FuzzCheck asks of each address that passes what the standard library knows about it, and the same
// of every IPv4 address that some gateway could take out of it.
func FuzzCheck(f *testing.F) {
	for _, block := range special {
		f.Add(netip.MustParsePrefix(block).Addr().AsSlice())
	}
	f.Add(netip.MustParseAddr("2002:a9fe:a9fe::1").AsSlice())
	f.Add(netip.MustParseAddr("2606:4700::5efe:127.0.0.1").AsSlice())
	f.Add(netip.MustParseAddr("93.184.216.34").AsSlice())
	g := guard(f)
	f.Fuzz(func(t *testing.T, bytes []byte) {
		address, ok := netip.AddrFromSlice(bytes)
		if !ok || g.Check(address) != nil {
			return
		}
		if !public(address) || address.Is4In6() {
			t.Errorf("%s passes", address)
		}
		for form, hidden := range embedded(address) {
			t.Errorf("%s passes, and is %s by %s", address, hidden, form)
		}
	})
}

func public(address netip.Addr) bool {
	return address.IsGlobalUnicast() && !address.IsPrivate() && !address.IsLoopback() &&
		!address.IsLinkLocalUnicast() && !address.IsMulticast() && !address.IsUnspecified()
}

// embedded returns the IPv4 addresses within an IPv6 one, by the form that puts them there.
func embedded(address netip.Addr) map[string]netip.Addr {
	if !address.Is6() {
		return nil
	}
	bytes := address.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(bytes[i : i+4])) }
	found := map[string]netip.Addr{}
	for form, place := range map[string]struct {
		prefix string
		at     int
	}{
		"compatibility": {"::/96", 12},
		"translation":   {"::ffff:0:0:0/96", 12},
		"NAT64":         {"64:ff9b::/96", 12},
		"local NAT64":   {"64:ff9b:1::/48", 12},
		"6to4":          {"2002::/16", 2},
		"Teredo":        {"2001::/32", 4},
	} {
		if netip.MustParsePrefix(place.prefix).Contains(address) {
			found[form] = at(place.at)
		}
	}
	if marker := [4]byte(bytes[8:12]); marker == [4]byte{0, 0, 0x5e, 0xfe} || marker == [4]byte{2, 0, 0x5e, 0xfe} {
		found["ISATAP"] = at(12)
	}
	return found
}
