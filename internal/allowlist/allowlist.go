// Package allowlist decides from which client addresses the keys of a merchant are accepted. Whoever answers that question uses it, so
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

// Test is Allows for an address as a person or a proxy writes it. The error is ErrAddress.
func (l List) Test(address string) (bool, error) {
	parsed, err := clientaddr.Parse(address)
	if err != nil {
		return false, ErrAddress
	}
	return l.Allows(parsed), nil
}

// Overlaps reports whether the list allows at least one address of the block.
func (l List) Overlaps(block netip.Prefix) bool {
	return len(l) == 0 || slices.ContainsFunc(l, block.Overlaps)
}

// Fingerprint identifies the list, in whatever order its entries are.
func (l List) Fingerprint() string {
	entries := make([]string, len(l))
	for i, block := range l {
		entries[i] = block.String()
	}
	slices.Sort(entries)
	sum := sha256.Sum256([]byte(strings.Join(entries, " ")))
	return hex.EncodeToString(sum[:fingerprintBytes])
}

const fingerprintBytes = 8

// The lengths of the blocks under which refused addresses are counted: usually of one network.
const (
	blockBitsIPv4 = 24
	blockBitsIPv6 = 48
)

// BlockOf returns the block under which a refused address is counted, a /24 or a /48.
func BlockOf(address netip.Addr) netip.Prefix {
	bits := blockBitsIPv6
	if address.Is4() {
		bits = blockBitsIPv4
	}
	return netip.PrefixFrom(address, bits).Masked()
}
