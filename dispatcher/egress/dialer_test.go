package egress_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
	"github.com/merchant-operator/merchant-operator/test/dnstest"
)

const patience = 20 * time.Second

func TestADialThatIsRefusedReachesNobody(t *testing.T) {
	names := dnstest.Start(t)
	names.Set("shop.example", "127.0.0.1")
	names.Set("shop6.example", "::1")
	names.Set("mapped.example", "::ffff:127.0.0.1")
	names.Set("two.example", "10.0.0.1", "127.0.0.1")
	inside := listen(t)
	dialer := egress.NewDialer(guard(t), names.Resolver(), patience)
	for _, host := range []string{
		"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]", "localhost",
		"shop.example", "shop6.example", "mapped.example", "two.example",
	} {
		connection, err := dialer.DialContext(t.Context(), "tcp", host+inside.port)
		if !errors.Is(err, egress.ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", host, err)
		}
		if err == nil {
			_ = connection.Close()
		}
	}
	// What the C library takes for 127.0.0.1 is a name, and mostly none that can be looked up.
	for _, host := range []string{"2130706433", "0x7f000001", "127.1", "0177.0.0.1"} {
		names.Set(host, "127.0.0.1")
		if connection, err := dialer.DialContext(t.Context(), "tcp", host+inside.port); err == nil {
			t.Errorf("%s: connected", host)
			_ = connection.Close()
		}
	}
	if reached := inside.reached(t); reached != 0 {
		t.Errorf("%d connections came through", reached)
	}
}

// The name was good when the Merchant was written, and on the first event.
func TestANameThatTurnsInwardsIsRefusedFromThenOn(t *testing.T) {
	names := dnstest.Start(t)
	inside := listen(t)
	dialer := egress.NewDialer(guard(t, "127.0.0.2/32"), names.Resolver(), patience)
	dial := func() error {
		connection, err := dialer.DialContext(t.Context(), "tcp", "shop.example"+inside.port)
		if err != nil {
			return err
		}
		return connection.Close()
	}
	for range 3 {
		names.Set("shop.example", "127.0.0.2")
		if err := dial(); err != nil {
			t.Fatalf("while the name means an open address: %v", err)
		}
		names.Set("shop.example", "127.0.0.1")
		if err := dial(); !errors.Is(err, egress.ErrRefused) {
			t.Fatalf("after the name has turned inwards: %v, want ErrRefused", err)
		}
	}
	if reached := inside.reached(t); reached != 3 {
		t.Errorf("%d connections came through, want the 3 that were open", reached)
	}
}

func TestOfANamesAddressesOnlyThosePermittedAreTried(t *testing.T) {
	names := dnstest.Start(t)
	names.Set("shop.example", "127.0.0.1", "127.0.0.2", "10.0.0.1")
	inside := listen(t)
	dialer := egress.NewDialer(guard(t, "127.0.0.2/32"), names.Resolver(), patience)
	connection, err := dialer.DialContext(t.Context(), "tcp", "shop.example"+inside.port)
	if err != nil {
		t.Fatal(err)
	}
	if peer := connection.RemoteAddr().String(); peer != "127.0.0.2"+inside.port {
		t.Errorf("connected to %s", peer)
	}
	_ = connection.Close()
}

// IPv4 within IPv6 has no block of its own to be opened, and would be another's.
func TestAnAddressIsJudgedAsItIsWritten(t *testing.T) {
	inside := listen(t)
	dialer := egress.NewDialer(guard(t, "127.0.0.1/32"), nil, patience)
	connection, err := dialer.DialContext(t.Context(), "tcp", "[::ffff:127.0.0.1]"+inside.port)
	if !errors.Is(err, egress.ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
	if err == nil {
		_ = connection.Close()
	}
}

func TestARefusalDoesNotRevealTheAddress(t *testing.T) {
	names := dnstest.Start(t)
	names.Set("shop.example", "10.20.30.40")
	dialer := egress.NewDialer(guard(t), names.Resolver(), patience)
	_, err := dialer.DialContext(t.Context(), "tcp", "shop.example:443")
	if err == nil || strings.Contains(err.Error(), "10.20.30.40") {
		t.Errorf("got %v", err)
	}
}

// listener counts the connections to every address of loopback.
type listener struct {
	net.Listener
	port  string // with its colon
	count atomic.Int32
	ended chan struct{}
}

func listen(t *testing.T) *listener {
	t.Helper()
	tcp, err := net.Listen("tcp", ":0") // every address of loopback is to reach it
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{Listener: tcp, port: ":" + port, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for {
			connection, err := tcp.Accept()
			if err != nil {
				return
			}
			if _, err := connection.Read(make([]byte, 1)); err == nil {
				_ = tcp.Close() // the connection of reached, which alone says something
			} else {
				l.count.Add(1)
			}
			_ = connection.Close()
		}
	}()
	t.Cleanup(func() {
		_ = tcp.Close()
		<-l.ended
	})
	return l
}

// reached returns how many connections came. It makes one of its own, behind all of them, so that
// those in the kernel's queue are counted.
func (l *listener) reached(t *testing.T) int32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", "127.0.0.1"+l.port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	<-l.ended
	_ = connection.Close()
	return l.count.Load()
}
