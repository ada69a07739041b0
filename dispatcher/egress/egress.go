// Package egress opens connections to addresses that merchants chose. It refuses every address outside the public
// internet, after name resolution and when it dials, so that a name whose answer changes, or a URL with an
// unusual spelling of an address, reaches nothing inside the cluster.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// ErrRefused says that webhooks must not go to an address. It never quotes the address.
var ErrRefused = errors.New("webhooks must not go to this address")

// azureHost is public in the registries and internal on Azure: every machine reaches its host's control channel there,
// and instance metadata behind it.
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

// Guard distinguishes public addresses from all others. The zero Guard refuses everything.
type Guard struct {
	public  *ssrf.Guardian
	allowed []netip.Prefix
}

// NewGuard returns a Guard that refuses what the IANA special-purpose registries list, multicast, and every IPv6
// address outside global unicast, except addresses in the allowed blocks. A block of IPv4 in IPv6 is an error, because
// addresses are compared in their own family.
func NewGuard(allowed []netip.Prefix) (Guard, error) {
	for _, block := range allowed {
		if !block.IsValid() || block.Addr().Is4In6() {
			return Guard{}, fmt.Errorf("%q is not a CIDR block such as 10.0.0.0/8", block)
		}
	}
	return Guard{
		public:  ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(azureHost)),
		allowed: slices.Clone(allowed),
	}, nil
}

// Check returns ErrRefused unless webhooks may go to the address.
func (g Guard) Check(address netip.Addr) error {
	switch {
	case slices.ContainsFunc(g.allowed, func(block netip.Prefix) bool { return block.Contains(address) }):
		return nil
	case g.public == nil, !address.IsValid(), isISATAP(address), g.public.SafeAddr(address) != nil:
		return ErrRefused
	}
	return nil
}

// isISATAP reports whether an IPv6 address contains an IPv4 address as in RFC 5214, section 6.1. Such an address may
// have any prefix.
func isISATAP(address netip.Addr) bool {
	if !address.Is6() {
		return false
	}
	bytes := address.As16()
	const universal = 0x02 // set by the RFC if the IPv4 address is public
	return bytes[8]&^universal == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe
}

// Dialer opens TCP connections to addresses that its Guard allows.
type Dialer struct {
	guard  Guard
	dialer *net.Dialer
}

// NewDialer returns a Dialer whose dials, with name resolution, take at most the timeout. A nil resolver is the
// system's. The Guard does not check name servers: the platform chooses them.
func NewDialer(guard Guard, resolver *net.Resolver, timeout time.Duration) *Dialer {
	return &Dialer{guard: guard, dialer: &net.Dialer{
		Timeout:        timeout,
		Resolver:       resolver,
		ControlContext: guard.control,
	}}
}

// DialContext connects to host:port. Of the addresses of a name only allowed ones are tried; ErrRefused says that there
// is none.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	// Check a literal address as it is written: the net package would turn ::ffff:a.b.c.d into IPv4.
	if literal, err := netip.ParseAddr(host); err == nil {
		if err := d.guard.Check(literal); err != nil {
			return nil, err
		}
	}
	connection, err := d.dialer.DialContext(ctx, network, address)
	if errors.Is(err, ErrRefused) {
		return nil, ErrRefused // without the address, which would reveal internal name resolution
	}
	return connection, err
}

// control runs between the creation of a socket and its connection, with the address that the kernel gets: nothing can
// change it afterwards.
func (g Guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	peer, err := netip.ParseAddrPort(address)
	if err != nil || (network != "tcp4" && network != "tcp6") {
		return ErrRefused
	}
	return g.Check(peer.Addr())
}
