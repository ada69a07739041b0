package egress

import "net/netip"

// Blocks of IPv6 addresses that contain IPv4 addresses.
var (
	nat64          = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052, translated by any NAT64 gateway
	localNAT64     = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215, translated by a gateway with a prefix inside it
	ipv4Compatible = netip.MustParsePrefix("::/96")           // RFC 4291
	ipv4Translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
	sixToFour      = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo         = netip.MustParsePrefix("2001::/32")       // RFC 4380
)

// embedded returns the IPv4 addresses that an IPv6 address contains; nil: none. A packet to the IPv6 address may reach
// each of them. Addresses of localNAT64 are not included, because only the gateway knows where theirs is.
func embedded(address netip.Addr) []netip.Addr {
	if !address.Is6() {
		return nil
	}
	bytes := address.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(bytes[i : i+4])) }
	var found []netip.Addr
	switch {
	case nat64.Contains(address), ipv4Translated.Contains(address):
		found = append(found, at(12))
	case ipv4Compatible.Contains(address) && !address.IsLoopback():
		found = append(found, at(12))
	case sixToFour.Contains(address):
		found = append(found, at(2))
	case teredo.Contains(address): // a server, and a client whose bits are inverted
		client := [4]byte{^bytes[12], ^bytes[13], ^bytes[14], ^bytes[15]}
		found = append(found, at(4), netip.AddrFrom4(client))
	}
	if isISATAP(bytes) { // with any prefix
		found = append(found, at(12))
	}
	return found
}

// isISATAP reports whether an IPv6 address contains an IPv4 address as in RFC 5214, section 6.1.
func isISATAP(bytes [16]byte) bool {
	const universal = 0x02 // set by the RFC if the IPv4 address is public
	return bytes[8]&^universal == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe
}

// embeddedAt returns the four places of the IPv4 address's bytes behind a NAT64 prefix of this many bits (RFC 6052,
// section 2.2); nil: no prefix inside localNAT64 has this length. Byte 8 is always 0.
func embeddedAt(bits int) []int {
	switch bits {
	case 48:
		return []int{6, 7, 9, 10}
	case 56:
		return []int{7, 9, 10, 11}
	case 64:
		return []int{9, 10, 11, 12}
	case 96:
		return []int{12, 13, 14, 15}
	}
	return nil
}

// translated returns the IPv4 address behind a NAT64 prefix of this many bits. false: the address is none of such a
// gateway, because a byte behind the IPv4 address is not 0. A gateway with a longer prefix could read it differently.
func translated(address netip.Addr, bits int) (netip.Addr, bool) {
	places := embeddedAt(bits)
	if places == nil {
		return netip.Addr{}, false
	}
	bytes := address.As16()
	for _, rest := range bytes[places[3]+1:] {
		if rest != 0 {
			return netip.Addr{}, false
		}
	}
	if bytes[8] != 0 && bits < 96 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{bytes[places[0]], bytes[places[1]], bytes[places[2]], bytes[places[3]]}), true
}
