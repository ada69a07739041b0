package redis

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/dnstest"
)

// Only the connection whose datagram of DNS was lost waits for it.
func TestDialer_LostDatagram(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	names := dnstest.Start(t)
	names.Set("redis.example", "127.0.0.1")
	address := strings.Replace(server.Addr().String(), "127.0.0.1", "redis.example", 1)
	dial := dialer(300*time.Millisecond, nil, func() *net.Resolver {
		resolver := names.Resolver()
		ask := resolver.Dial
		resolver.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := ask(ctx, network, address)
			if err == nil {
				context.AfterFunc(t.Context(), func() { _ = connection.Close() }) //nolint:contextcheck // or a lost lookup outlives the test
			}
			return connection, errors.Join(err, t.Context().Err())
		}
		return resolver
	})

	names.Lose(2) // A and AAAA
	first := make(chan error, 1)
	go func() {
		_, err := dial(t.Context(), "tcp", address)
		first <- err
	}()
	await.Until(t, time.Minute, "the first one asks", func() bool { return names.Losing() == 0 })
	connection, err := dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = connection.Close()
	if err := <-first; err == nil {
		t.Error("connected without an answer of DNS")
	}
}
