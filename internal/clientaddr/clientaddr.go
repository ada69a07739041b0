// Package clientaddr determines the client address of a request. Anyone can write X-Forwarded-For, so only what trusted
// proxies appended to it is used.
package clientaddr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ErrMalformed means that the peer's address, or a hop of X-Forwarded-For that a trusted proxy appended, is not an address. It
// never quotes the hop.
var ErrMalformed = errors.New("cannot determine the client address: X-Forwarded-For is malformed")

// Resolver finds client addresses. The zero Resolver trusts no proxy.
type Resolver struct{ trusted []netip.Prefix }

// NewResolver returns a Resolver that trusts proxies in the given blocks. A block of IPv4 in IPv6 is an error, because addresses
// are compared as IPv4.
func NewResolver(trusted []netip.Prefix) (Resolver, error) {
	for _, block := range trusted {
		if !block.IsValid() || block.Addr().Is4In6() {
			return Resolver{}, fmt.Errorf("--trusted-proxies: %q is not a CIDR block such as 10.0.0.0/8", block)
		}
	}
	return Resolver{slices.Clone(trusted)}, nil
}

// Resolve returns the client's address, given the socket's peer (host:port) and all X-Forwarded-For headers in order. If the
// peer is trusted, the client is the rightmost hop that is not a trusted proxy, or the leftmost hop if all are trusted. IPv4 in
// IPv6 is unmapped and zones are dropped. The error is ErrMalformed.
func (r Resolver) Resolve(peer string, forwardedFor []string) (netip.Addr, error) {
	socket, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Addr{}, ErrMalformed
	}
	client := normalize(socket.Addr())
	for _, line := range slices.Backward(forwardedFor) {
		for more := true; more; {
			if !r.trusts(client) {
				return client, nil
			}
			var hop string
			line, hop, more = cutLast(line)
			if client, err = Parse(hop); err != nil {
				return netip.Addr{}, err
			}
		}
	}
	return client, nil
}

// TrustsPeer reports whether the socket's peer (host:port) is a trusted proxy.
func (r Resolver) TrustsPeer(peer string) bool {
	socket, err := netip.ParseAddrPort(peer)
	return err == nil && r.trusts(normalize(socket.Addr()))
}

func (r Resolver) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(r.trusted, func(block netip.Prefix) bool { return block.Contains(address) })
}

// cutLast splits a line at its last comma.
func cutLast(line string) (before, last string, found bool) {
	if i := strings.LastIndexByte(line, ','); i >= 0 {
		return line[:i], line[i+1:], true
	}
	return "", line, false
}

// Parse reads an address as a proxy or a person writes it, also with a port, and returns it as Resolve does. The error is ErrMalformed.
func Parse(hop string) (netip.Addr, error) {
	hop = strings.Trim(hop, " \t")
	if address, err := netip.ParseAddr(hop); err == nil {
		return normalize(address), nil
	}
	if strings.HasSuffix(hop, "]") { // an IPv6 address in brackets, without a port
		hop += ":0"
	}
	if withPort, err := netip.ParseAddrPort(hop); err == nil {
		return normalize(withPort.Addr()), nil
	}
	return netip.Addr{}, ErrMalformed
}

func normalize(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }

// The lengths of the blocks that usually belong to one network.
const (
	networkBitsIPv4 = 24
	networkBitsIPv6 = 48
)

// Network returns the block of an address that usually belongs to one network: a /24 or a /48.
func Network(address netip.Addr) netip.Prefix {
	bits := networkBitsIPv6
	if address.Is4() {
		bits = networkBitsIPv4
	}
	return netip.PrefixFrom(address, bits).Masked()
}

// subscriberBits is the length of the IPv6 block that one subscriber usually has.
const subscriberBits = 64

// LimitKey returns the rate limit key of an address: the IPv4 address, or the /64 block of an IPv6 address, as in
// ip:203.0.113.7 and ip:2001:db8:0:1::/64.
func LimitKey(address netip.Addr) string {
	const enough = 48 // for any address
	text := append(make([]byte, 0, enough), "ip:"...)
	if address.Is4() {
		return string(address.AppendTo(text))
	}
	return string(netip.PrefixFrom(address, subscriberBits).Masked().AppendTo(text))
}
