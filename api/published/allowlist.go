package published

import (
	"errors"
	"net/netip"
	"strings"
)

// Allowlist returns the blocks a caller's address must be in; none means any address. One entry
// that cannot be read is an error, for an allowlist that lost it could let everyone in.
func (r MerchantRecord) Allowlist() ([]netip.Prefix, error) {
	blocks := make([]netip.Prefix, 0, len(r.IPAllowlist))
	for i, entry := range r.IPAllowlist {
		block, err := parseBlock(string(entry))
		if err != nil {
			return nil, invalid("ipAllowlist[%d] is neither an address nor a CIDR block", i)
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

var errBlock = errors.New("not a block")

// parseBlock reads an address, as a block of one, or a CIDR block, by the rules of the CRD. Host
// bits, zones and IPv4 in IPv6 are refused: whoever wrote them meant something that it would not do.
func parseBlock(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" || addr.Is4In6() {
			return netip.Prefix{}, errBlock
		}
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	block, err := netip.ParsePrefix(s)
	if err != nil || block.Addr().Is4In6() || block != block.Masked() {
		return netip.Prefix{}, errBlock
	}
	return block, nil
}
