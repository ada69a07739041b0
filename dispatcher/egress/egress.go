// Package egress opens connections to addresses that merchants chose. It refuses every address outside the public
// internet, after name resolution and when it dials, so that a name whose answer changes, or a URL with an
// unusual spelling of an address, reaches nothing inside the cluster. It resolves names as they are written, so that
// nothing inside the cluster answers for a name outside.
package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ErrRefused says that webhooks must not go to an address. It never quotes the address.
var ErrRefused = errors.New("webhooks must not go to this address")

// errNotConnected is the error of a name with refused and allowed addresses, none of which could be connected to. It says no more, as the
// error of a refused address comes first.
var errNotConnected = errors.New("none of the allowed addresses could be connected to")

// azureHost is public in the registries and internal on Azure: every machine reaches its host's control channel there,
// and instance metadata behind it.
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

// Rules are what a platform decides about addresses and names.
type Rules struct {
	// Allow has blocks that are allowed although they are not public.
	Allow []netip.Prefix
	// Deny has blocks that are refused although they are public or in Allow.
	Deny []netip.Prefix
	// DenyDomains has domains, such as cluster.local, that are refused with all names below them.
	DenyDomains []string
}

// DefaultDeny returns blocks that the registries call public and clouds use inside: GKE's default range of Services, and
// the private service endpoints of IBM Cloud.
func DefaultDeny() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("34.118.224.0/20"), netip.MustParsePrefix("166.8.0.0/14")}
}

// DefaultDenyDomains returns the domains of Services in a cluster with the usual domain.
func DefaultDenyDomains() []string { return []string{"svc", "cluster.local"} }

// Guard distinguishes public addresses from all others. The zero Guard refuses everything.
type Guard struct {
	public      *ssrf.Guardian
	allow, deny []netip.Prefix
	denyDomains []string // each with a dot before it, in lower case
}

// NewGuard returns a Guard that refuses what the IANA special-purpose registries list, multicast, and every IPv6
// address outside global unicast, except as the rules say. An error names the flag of the wrong rule.
func NewGuard(rules Rules) (Guard, error) {
	for flag, blocks := range map[string][]netip.Prefix{
		"--webhook-allow-cidrs": rules.Allow, "--webhook-deny-cidrs": rules.Deny,
	} {
		for _, block := range blocks {
			if !block.IsValid() || block.Addr().Is4In6() { // addresses are compared in their own family
				return Guard{}, fmt.Errorf("%s: %q is not a CIDR block such as 10.0.0.0/8", flag, block)
			}
		}
	}
	for _, block := range rules.Allow {
		if localNAT64.Contains(block.Addr()) && embeddedAt(block.Bits()) == nil {
			return Guard{}, fmt.Errorf("--webhook-allow-cidrs: %s must be the prefix of a NAT64 gateway, of 48, 56, 64 or 96 bits", block)
		}
	}
	guard := Guard{
		public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(azureHost)),
		allow:  slices.Clone(rules.Allow), deny: slices.Clone(rules.Deny),
	}
	for _, domain := range rules.DenyDomains {
		name := strings.ToLower(strings.Trim(domain, "."))
		if problems := validation.IsDNS1123Subdomain(name); problems != nil {
			return Guard{}, fmt.Errorf("--webhook-deny-domains: %q is not a domain such as cluster.local", domain)
		}
		guard.denyDomains = append(guard.denyDomains, "."+name)
	}
	return guard, nil
}

// Check returns ErrRefused unless webhooks may go to the address. Behind an IPv6 address that contains an IPv4 one is
// the IPv4 host, so both are judged. IPv4-mapped addresses are always refused: nobody needs to write IPv4 that way.
func (g Guard) Check(address netip.Addr) error {
	if g.public == nil || !address.IsValid() || address.Is4In6() || contains(g.deny, address) {
		return ErrRefused
	}
	hidden := embedded(address)
	for _, ipv4 := range hidden {
		if g.Check(ipv4) != nil {
			return ErrRefused
		}
	}
	switch {
	case localNAT64.Contains(address):
		return g.checkLocalNAT64(address)
	case contains(g.allow, address), nat64.Contains(address):
		return nil
	case len(hidden) == 0 && g.public.SafeAddr(address) == nil:
		return nil
	}
	return ErrRefused
}

// checkLocalNAT64 allows what a gateway with an allowed prefix translates to an allowed IPv4 address. The prefix's
// length says where the IPv4 address is.
func (g Guard) checkLocalNAT64(address netip.Addr) error {
	for _, prefix := range g.allow {
		if !prefix.Contains(address) {
			continue
		}
		if ipv4, ok := translated(address, prefix.Bits()); ok && g.Check(ipv4) == nil {
			return nil
		}
	}
	return ErrRefused
}

// CheckName returns ErrRefused if the name, with or without its last dot, is in a denied domain or has only one label,
// as localhost.
func (g Guard) CheckName(name string) error {
	dotted := "." + strings.ToLower(strings.TrimSuffix(name, "."))
	if strings.LastIndexByte(dotted, '.') == 0 || slices.ContainsFunc(g.denyDomains, func(domain string) bool { return strings.HasSuffix(dotted, domain) }) {
		return ErrRefused
	}
	return nil
}

// CheckHost returns ErrRefused if webhooks must not go to the host of a URL, an address or a name, whatever the name resolves to. An address
// is judged as it is written: the net package would turn ::ffff:a.b.c.d into IPv4.
func (g Guard) CheckHost(host string) error {
	if literal, err := netip.ParseAddr(host); err == nil {
		return g.Check(literal)
	}
	return g.CheckName(host)
}

func contains(blocks []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(blocks, func(block netip.Prefix) bool { return block.Contains(address) })
}

// Dialer opens TCP connections to addresses that its Guard allows.
type Dialer struct {
	guard  Guard
	dialer *net.Dialer
}

// maxNameAnswer bounds what a name server sends over one TCP connection: who owns a name may give it thousands of addresses, each of which
// costs a dial two sockets. It is enough for 500.
const maxNameAnswer = 8 << 10

// dialNameServer connects to a name server of the system. Answers over UDP are small.
func dialNameServer(ctx context.Context, network, address string) (net.Conn, error) {
	connection, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return connection, err
	}
	return boundedConn{connection, io.LimitReader(connection, maxNameAnswer)}, nil
}

// boundedConn ends where its reader does.
type boundedConn struct {
	net.Conn

	from io.Reader
}

func (c boundedConn) Read(into []byte) (int, error) { return c.from.Read(into) }

// NewDialer returns a Dialer whose dials, with name resolution, take at most the timeout. A nil resolver asks the system's name
// servers. The Guard does not check them: the platform chooses them.
func NewDialer(guard Guard, resolver *net.Resolver, timeout time.Duration) *Dialer {
	if resolver == nil {
		resolver = &net.Resolver{PreferGo: true, Dial: dialNameServer}
	}
	return &Dialer{guard: guard, dialer: &net.Dialer{
		Timeout:        timeout,
		Resolver:       resolver,
		ControlContext: guard.control,
	}}
}

// DialContext connects to host:port. A name is complete: the search list of resolv.conf is never used, because in a
// pod it has svc.cluster.local, where whoever owns a namespace called dev answers for acme.dev. Of the addresses of a
// name only allowed ones are tried; ErrRefused says that there is none. An allowed one may be back later, so if it could not be
// connected to, the error is another one.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	if err := d.guard.CheckHost(host); err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		address = net.JoinHostPort(strings.TrimSuffix(host, ".")+".", port)
	}
	var allowed atomic.Bool
	connection, err := d.dialer.DialContext(context.WithValue(ctx, allowedKey{}, &allowed), network, address)
	switch {
	case !errors.Is(err, ErrRefused):
		return connection, err
	case allowed.Load():
		return nil, errNotConnected
	}
	return nil, ErrRefused // without the address, which would reveal internal name resolution
}

// allowedKey is the context's key of an *atomic.Bool: whether the dial has tried an allowed address. Addresses of the two families are tried
// at the same time.
type allowedKey struct{}

// control runs between the creation of a socket and its connection, with the address that the kernel gets: nothing can
// change it afterwards.
func (g Guard) control(ctx context.Context, network, address string, _ syscall.RawConn) error {
	peer, err := netip.ParseAddrPort(address)
	if err != nil || (network != "tcp4" && network != "tcp6") {
		return ErrRefused
	}
	if err := g.Check(peer.Addr()); err != nil {
		return err
	}
	if allowed, ok := ctx.Value(allowedKey{}).(*atomic.Bool); ok {
		allowed.Store(true)
	}
	return nil
}
