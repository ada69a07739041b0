package published

import (
	"net/netip"
	"testing"
)

// FuzzParseBlock holds that a block which is read lets in the addresses it seems to, and no other.
func FuzzParseBlock(f *testing.F) {
	for _, text := range []string{
		"203.0.113.0/24", "198.51.100.7", "2001:db8::/48", "::/0", "0.0.0.0/0", "203.0.113.1/24", "::ffff:192.0.2.1", "::ffff:0:0/96",
		"fe80::1%eth0", "192.0.2.1/33", "192.0.2.1/-1", "192.0.2.01", "192.0.2.0/024", "/", "", " 192.0.2.1",
	} {
		f.Add(text, []byte{192, 0, 2, 1})
	}
	f.Fuzz(func(t *testing.T, text string, raw []byte) {
		block, err := parseBlock(text)
		if err != nil {
			return
		}
		again, err := parseBlock(block.String())
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
