package clientaddr

import "net/netip"

// subscriberBits is the part of an IPv6 address that names a subscriber; who has one address of the
// block has all of them.
const subscriberBits = 64

// Subject returns who is counted for an address: the IPv4 address, or the /64 block of an IPv6 one,
// as in ip:203.0.113.7 and ip:2001:db8:0:1::/64.
func Subject(address netip.Addr) string {
	const enough = 48 // for any address
	text := append(make([]byte, 0, enough), "ip:"...)
	if address.Is4() {
		return string(address.AppendTo(text))
	}
	return string(netip.PrefixFrom(address, subscriberBits).Masked().AppendTo(text))
}

// Subscriber returns the same as an address: the first one of the block.
func Subscriber(address netip.Addr) netip.Addr {
	if address.Is4() {
		return address
	}
	return netip.PrefixFrom(address, subscriberBits).Masked().Addr()
}
