package clientaddr_test

import (
	"net/netip"
	"testing"

	"github.com/merchant-operator/merchant-operator/apiserver/clientaddr"
)

func BenchmarkResolve(b *testing.B) {
	proxied, err := clientaddr.NewResolver([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")})
	if err != nil {
		b.Fatal(err)
	}
	for _, client := range []struct {
		name      string
		resolver  clientaddr.Resolver
		peer      string
		forwarded []string
	}{
		{"proxies=0/ip=4", clientaddr.Resolver{}, "203.0.113.7:4711", nil},
		{"proxies=0/ip=6", clientaddr.Resolver{}, "[2001:db8::7]:4711", nil},
		{"proxies=1/ip=4", proxied, "10.0.0.1:4711", []string{"203.0.113.7"}},
		{"proxies=1/ip=6", proxied, "[fd00::1]:4711", []string{"2001:db8::7"}},
		{"proxies=3/ip=4", proxied, "10.0.0.1:4711", []string{"203.0.113.7, 10.0.0.3, 10.0.0.2"}},
	} {
		b.Run(client.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.resolver.Resolve(client.peer, client.forwarded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSubject(b *testing.B) {
	for _, address := range []struct{ name, text string }{{"ip=4", "203.0.113.7"}, {"ip=6", "2001:db8::7"}} {
		b.Run(address.name, func(b *testing.B) {
			parsed := netip.MustParseAddr(address.text)
			b.ReportAllocs()
			for b.Loop() {
				_ = clientaddr.LimitKey(parsed)
			}
		})
	}
}

func BenchmarkSubscriber(b *testing.B) {
	for _, address := range []struct{ name, text string }{{"ip=4", "203.0.113.7"}, {"ip=6", "2001:db8::7"}} {
		b.Run(address.name, func(b *testing.B) {
			parsed := netip.MustParseAddr(address.text)
			b.ReportAllocs()
			for b.Loop() {
				_ = clientaddr.Subscriber(parsed)
			}
		})
	}
}
