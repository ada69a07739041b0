// Package allowlist decides from which client addresses the keys of a merchant are accepted. All that answer that question use it, so
// that all answers are the same.
package allowlist

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
)

// ErrAddress says that a text is not an address. It never quotes the text.
var ErrAddress = errors.New("not an IP address; use a form like 203.0.113.7 or 2001:db8::7")

// List is the address blocks of a merchant; empty: any address is allowed.
type List []netip.Prefix

// Parse reads the spec.ipAllowlist of a Merchant. One invalid entry is an error, as for the API.
func Parse(entries []v1alpha1.IPBlock) (List, error) { return published.ParseAllowlist(entries) }

// Allows reports whether the list allows an address in the form of clientaddr: no IPv4 in IPv6, no zone.
func (l List) Allows(address netip.Addr) bool {
	return len(l) == 0 || slices.ContainsFunc(l, func(block netip.Prefix) bool { return block.Contains(address) })
}

// Narrower returns the second list if it refuses an address that the first one allows, else the first. It is taken as a whole: without an address in
// common there is nothing else to publish, and what it adds are addresses that the owner trusts. Lists that cannot be read narrow nothing.
func Narrower(before, after []v1alpha1.IPBlock) []v1alpha1.IPBlock {
	old, oldErr := Parse(before)
	next, nextErr := Parse(after)
	if oldErr == nil && nextErr == nil && !next.Covers(old) { // the CRD has checked both
		return after
	}
	return before
}

// Covers reports whether this list allows every address that the other one allows.
func (l List) Covers(other List) bool {
	if len(l) == 0 {
		return true
	}
	if len(other) == 0 {
		other = List{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	return !slices.ContainsFunc(other, func(block netip.Prefix) bool { return !l.CoversBlock(block) })
}

// CoversBlock reports whether the list allows every address of a block. It halves the block until an entry has it whole, or none overlaps it;
// entries are few, so that ends soon.
func (l List) CoversBlock(block netip.Prefix) bool {
	if len(l) == 0 {
		return true
	}
	overlaps := false
	for _, entry := range l {
		if entry.Bits() <= block.Bits() && entry.Contains(block.Addr()) {
			return true
		}
		overlaps = overlaps || entry.Overlaps(block)
	}
	if !overlaps {
		return false
	}
	bits := block.Bits() + 1
	low := netip.PrefixFrom(block.Addr(), bits)
	bytes := block.Addr().AsSlice()
	bytes[block.Bits()/8] |= 1 << (7 - block.Bits()%8)
	high, _ := netip.AddrFromSlice(bytes)
	return l.CoversBlock(low) && l.CoversBlock(netip.PrefixFrom(high, bits))
}

// Test is Allows for an address as a person or a proxy writes it. The error is ErrAddress.
func (l List) Test(address string) (bool, error) {
	parsed, err := clientaddr.Parse(address)
	if err != nil {
		return false, ErrAddress
	}
	return l.Allows(parsed), nil
}

// Block returns the block under which an address that the list does not allow is counted: its network. If the list allows a part of it,
// a fingerprint of that part follows, after a space. So a block that the list was changed for has another text.
func (l List) Block(address netip.Addr) string {
	block := clientaddr.Network(address)
	var allowed List
	for _, entry := range l {
		if entry.Overlaps(block) {
			allowed = append(allowed, entry)
		}
	}
	if len(l) > 0 && len(allowed) == 0 {
		return block.String()
	}
	return block.String() + " " + allowed.fingerprint()
}

// keyMark is between a block and the id of the key whose own list does not allow it.
const keyMark = " key:"

// KeyBlock returns the block under which an address is counted that the merchant's list allows, and the list of a key does not.
func KeyBlock(address netip.Addr, keyID string) string {
	return clientaddr.Network(address).String() + keyMark + keyID
}

// ParseKeyBlock returns the CIDR block and the key id of a KeyBlock, if it is one.
func ParseKeyBlock(text string) (block netip.Prefix, keyID string, ok bool) {
	name, keyID, ok := strings.Cut(text, keyMark)
	block, err := netip.ParsePrefix(name)
	return block, keyID, ok && err == nil
}

// ParseBlock returns the CIDR block of a Block, if that is its text for the present list.
func (l List) ParseBlock(text string) (netip.Prefix, bool) {
	name, _, _ := strings.Cut(text, " ")
	block, err := netip.ParsePrefix(name)
	return block, err == nil && l.Block(block.Addr()) == text
}

// fingerprint identifies the list, in whatever order its entries are.
func (l List) fingerprint() string {
	entries := make([]string, len(l))
	for i, block := range l {
		entries[i] = block.String()
	}
	slices.Sort(entries)
	sum := sha256.Sum256([]byte(strings.Join(entries, " ")))
	return hex.EncodeToString(sum[:fingerprintBytes])
}

const fingerprintBytes = 8
