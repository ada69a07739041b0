package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"code.dny.dev/ssrf"
)

// ErrRefused says that an address is not one that webhooks may go to. It never quotes the address.
var ErrRefused = errors.New("webhooks may not go to this address")

// refusedToo is what the registries call public and a cloud does not: on Azure every machine reaches
// its host's control channel here, and instance metadata behind it.
var refusedToo = netip.MustParsePrefix("168.63.129.16/32")

// Guard tells public addresses from all others. The zero Guard refuses everything.
type Guard struct {
	public *ssrf.Guardian
	open   []netip.Prefix
}

// NewGuard returns a Guard that refuses what the IANA special-purpose registries list, multicast, and
// every IPv6 address outside of global unicast; not even so it refuses what is in the open blocks,
// which are for the platform's operator to choose. A block of IPv4 in IPv6 is an error, for addresses
// are compared in their own family.
func NewGuard(open []netip.Prefix) (Guard, error) {
	for _, block := range open {
		if !block.IsValid() || block.Addr().Is4In6() {
			return Guard{}, fmt.Errorf("open block %q: want a CIDR block such as 10.0.0.0/8", block)
		}
	}
	return Guard{
		public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(refusedToo)),
		open:   slices.Clone(open),
	}, nil
}

// Check returns ErrRefused unless webhooks may go to the address.
func (g Guard) Check(address netip.Addr) error {
	switch {
	case slices.ContainsFunc(g.open, func(block netip.Prefix) bool { return block.Contains(address) }):
		return nil
	case g.public == nil, !address.IsValid(), isISATAP(address), g.public.SafeAddr(address) != nil:
		return ErrRefused
	}
	return nil
}

// isISATAP reports whether an IPv6 address carries an IPv4 one in the manner of RFC 5214, section 6.1,
// which may have any prefix.
func isISATAP(address netip.Addr) bool {
	if !address.Is6() {
		return false
	}
	bytes := address.As16()
	const universal = 0x02 // set when the IPv4 address is a public one, for those who keep to the RFC
	return bytes[8]&^universal == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe
}
