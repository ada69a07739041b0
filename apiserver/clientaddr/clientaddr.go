// Package clientaddr decides which address a request comes from. X-Forwarded-For is written by
// anyone, so it is believed only as far as trusted proxies have passed it on.
package clientaddr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ErrMalformed says that the client's address cannot be told: the peer's address, or a hop of
// X-Forwarded-For that a trusted proxy passed on, is no address. It never quotes the hop.
var ErrMalformed = errors.New("the client's address cannot be told: X-Forwarded-For is malformed")

// Resolver finds client addresses. The zero Resolver trusts no proxy.
type Resolver struct{ trusted []netip.Prefix }

// NewResolver returns a Resolver that believes proxies in the given blocks. A block of IPv4 in IPv6
// is an error, for addresses are compared as IPv4.
func NewResolver(trusted []netip.Prefix) (Resolver, error) {
	for _, block := range trusted {
		if !block.IsValid() || block.Addr().Is4In6() {
			return Resolver{}, fmt.Errorf("trusted proxy %q: want a CIDR block such as 10.0.0.0/8", block)
		}
	}
	return Resolver{slices.Clone(trusted)}, nil
}

// Resolve returns the address of the client, given the socket's peer (host:port) and all lines of
// X-Forwarded-For in their order. Behind a trusted peer the hops are walked from right to left, the
// order in which proxies appended them, past trusted ones; the first other one is the client, and
// what stands left of it is hearsay. If all are trusted, the leftmost is. IPv4 in IPv6 is unmapped
// and zones are dropped. The error is ErrMalformed.
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
			if client, err = parseHop(hop); err != nil {
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

// parseHop reads an address, with or without a port, which some proxies append.
func parseHop(hop string) (netip.Addr, error) {
	hop = strings.Trim(hop, " \t")
	if address, err := netip.ParseAddr(hop); err == nil {
		return normalize(address), nil
	}
	if withPort, err := netip.ParseAddrPort(hop); err == nil {
		return normalize(withPort.Addr()), nil
	}
	return netip.Addr{}, ErrMalformed
}

func normalize(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }

// subscriberBits is the part of an IPv6 address that names a subscriber; who has one address of the
// block has all of them.
const subscriberBits = 64

// LimitKey returns who is counted for an address: the IPv4 address, or the /64 block of an IPv6 one,
// as in ip:203.0.113.7 and ip:2001:db8:0:1::/64.
func LimitKey(address netip.Addr) string {
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
