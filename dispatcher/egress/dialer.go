package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Dialer opens TCP connections to the addresses its Guard lets pass.
type Dialer struct {
	guard  Guard
	dialer *net.Dialer
}

// NewDialer returns a Dialer that gives up after the timeout, resolution included. A nil resolver is
// the system's. Name servers are of the platform's choosing, so the Guard does not judge them.
func NewDialer(guard Guard, resolver *net.Resolver, timeout time.Duration) *Dialer {
	return &Dialer{guard: guard, dialer: &net.Dialer{
		Timeout:        timeout,
		Resolver:       resolver,
		ControlContext: guard.control,
	}}
}

// DialContext opens a connection to host:port. A name is refused with ErrRefused when none of its
// addresses may be used; when only some may, those are tried.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	// An address is judged as it is written too: the net package would make IPv4 of ::ffff:a.b.c.d.
	if literal, err := netip.ParseAddr(host); err == nil {
		if err := d.guard.Check(literal); err != nil {
			return nil, err
		}
	}
	connection, err := d.dialer.DialContext(ctx, network, address)
	if errors.Is(err, ErrRefused) {
		return nil, ErrRefused // without the address, which tells what a name means in here
	}
	return connection, err
}

// control runs between the creation of a socket and its connection, with the very address that the
// kernel is about to be given: nothing can change it afterwards.
func (g Guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	peer, err := netip.ParseAddrPort(address)
	if err != nil || (network != "tcp4" && network != "tcp6") {
		return ErrRefused
	}
	return g.Check(peer.Addr())
}
