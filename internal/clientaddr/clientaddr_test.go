package clientaddr_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
)

var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

func resolver(t testing.TB, trusted ...netip.Prefix) clientaddr.Resolver {
	t.Helper()
	r, err := clientaddr.NewResolver(trusted)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResolve(t *testing.T) {
	const proxy, stranger = "10.1.2.3:40000", "198.51.100.9:40000"
	tests := map[string]struct {
		peer  string
		lines []string
		want  string // empty: ErrMalformed
	}{
		"a direct caller":                        {peer: stranger, want: "198.51.100.9"},
		"a direct caller's header is not read":   {peer: stranger, lines: []string{"203.0.113.7"}, want: "198.51.100.9"},
		"nor is it checked":                      {peer: stranger, lines: []string{"nonsense"}, want: "198.51.100.9"},
		"a trusted proxy without the header":     {peer: proxy, want: "10.1.2.3"},
		"one hop":                                {peer: proxy, lines: []string{"203.0.113.7"}, want: "203.0.113.7"},
		"the rightmost untrusted hop counts":     {peer: proxy, lines: []string{"1.1.1.1, 203.0.113.7"}, want: "203.0.113.7"},
		"trusted hops are walked past":           {peer: proxy, lines: []string{"203.0.113.7, 10.9.9.9,10.8.8.8"}, want: "203.0.113.7"},
		"several lines are one list":             {peer: proxy, lines: []string{"1.1.1.1", "203.0.113.7", "10.9.9.9"}, want: "203.0.113.7"},
		"all hops trusted: the leftmost":         {peer: proxy, lines: []string{"10.7.7.7, 10.9.9.9"}, want: "10.7.7.7"},
		"what is left of the client is hearsay":  {peer: proxy, lines: []string{"nonsense, 203.0.113.7"}, want: "203.0.113.7"},
		"also on an earlier line":                {peer: proxy, lines: []string{"nonsense", "203.0.113.7"}, want: "203.0.113.7"},
		"spaces and tabs around a hop":           {peer: proxy, lines: []string{"1.1.1.1,\t 203.0.113.7 \t"}, want: "203.0.113.7"},
		"a hop with a port":                      {peer: proxy, lines: []string{"203.0.113.7:51000"}, want: "203.0.113.7"},
		"an IPv6 hop":                            {peer: proxy, lines: []string{"2001:db8::7"}, want: "2001:db8::7"},
		"an IPv6 hop with a port":                {peer: proxy, lines: []string{"[2001:db8::7]:51000"}, want: "2001:db8::7"},
		"an IPv6 hop in brackets":                {peer: proxy, lines: []string{"[2001:db8::7]"}, want: "2001:db8::7"},
		"an IPv4 hop in brackets":                {peer: proxy, lines: []string{"[203.0.113.7]"}},
		"an IPv6 hop with half a bracket":        {peer: proxy, lines: []string{"2001:db8::7]"}},
		"an IPv6 proxy":                          {peer: "[fd00::1]:40000", lines: []string{"203.0.113.7, fd12::1"}, want: "203.0.113.7"},
		"IPv4 in IPv6 is IPv4":                   {peer: "[::ffff:10.1.2.3]:40000", lines: []string{"::ffff:203.0.113.7"}, want: "203.0.113.7"},
		"a zone is dropped":                      {peer: "[fe80::1%eth0]:40000", want: "fe80::1"},
		"a hop's zone is dropped":                {peer: proxy, lines: []string{"fe80::1%eth0"}, want: "fe80::1"},
		"a malformed hop":                        {peer: proxy, lines: []string{"203.0.113.7, nonsense"}},
		"a malformed hop left of trusted ones":   {peer: proxy, lines: []string{"203.0.113.7, nonsense, 10.9.9.9"}},
		"an obfuscated hop (RFC 7239) is no use": {peer: proxy, lines: []string{"unknown"}},
		"an empty header":                        {peer: proxy, lines: []string{""}},
		"an empty hop":                           {peer: proxy, lines: []string{"203.0.113.7,"}},
		"an empty hop between lines":             {peer: proxy, lines: []string{"203.0.113.7", ""}},
		"a block is no address":                  {peer: proxy, lines: []string{"203.0.113.0/24"}},
		"octal digits":                           {peer: proxy, lines: []string{"203.0.113.007"}},
		"a peer without a port":                  {peer: "198.51.100.9"},
		"a peer that is a path":                  {peer: "@"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := resolver(t, proxies...).Resolve(test.peer, test.lines)
			if test.want == "" {
				if !errors.Is(err, clientaddr.ErrMalformed) {
					t.Fatalf("got %v, %v, want ErrMalformed", got, err)
				}
				return
			}
			if err != nil || got.String() != test.want {
				t.Errorf("got %v, %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestResolve_NoTrustedProxies(t *testing.T) {
	got, err := clientaddr.Resolver{}.Resolve("127.0.0.1:40000", []string{"203.0.113.7"})
	if err != nil || got.String() != "127.0.0.1" {
		t.Errorf("got %v, %v, want the peer", got, err)
	}
}

func TestNewResolver_InvalidBlocks(t *testing.T) {
	for _, block := range []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")} {
		if _, err := clientaddr.NewResolver([]netip.Prefix{block}); err == nil {
			t.Errorf("%v was taken", block)
		}
	}
}

func TestResolve_NoAllocations(t *testing.T) {
	r, lines := resolver(t, proxies...), []string{"1.1.1.1, 203.0.113.7", "10.9.9.9"}
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := r.Resolve("10.1.2.3:40000", lines); err != nil {
			t.Error(err)
		}
	})
	if allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}

func TestSubject(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.7":              "ip:203.0.113.7",
		"2001:db8:0:1:2:3:4:5":     "ip:2001:db8:0:1::/64",
		"2001:db8:0:1:ffff::":      "ip:2001:db8:0:1::/64",
		"2001:db8:0:2:2:3:4:5":     "ip:2001:db8:0:2::/64",
		"64:ff9b::203.0.113.7":     "ip:64:ff9b::/64",
		"255.255.255.255":          "ip:255.255.255.255",
		"::1":                      "ip:::/64",
		"fe80::1234:5678:9abc:def": "ip:fe80::/64",
	} {
		if got := clientaddr.LimitKey(netip.MustParseAddr(address)); got != want {
			t.Errorf("Subject(%s) = %s, want %s", address, got, want)
		}
	}
}

// A client never talks itself into a trusted block: whatever it sends, what its proxy appends after
// it decides.
func FuzzResolve(f *testing.F) {
	f.Add("1.1.1.1", "")
	f.Add("nonsense,,", "[::1]:8")
	f.Add("10.0.0.1", "10.0.0.1")
	f.Fuzz(func(t *testing.T, first, second string) {
		r := resolver(t, proxies...)
		got, err := r.Resolve("10.1.2.3:40000", []string{first, second + ",203.0.113.7"})
		if err != nil || got.String() != "203.0.113.7" {
			t.Errorf("got %v, %v", got, err)
		}
		if got, err = r.Resolve("10.1.2.3:40000", []string{first, second}); err == nil && (!got.IsValid() || got.Is4In6() || got.Zone() != "") {
			t.Errorf("got %#v", got)
		}
	})
}

func TestTrustsPeer(t *testing.T) {
	resolver, err := clientaddr.NewResolver([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	for peer, want := range map[string]bool{
		"10.1.2.3:443": true, "[::ffff:10.1.2.3]:443": true, "203.0.113.7:443": false, "10.1.2.3": false, "": false,
	} {
		if got := resolver.TrustsPeer(peer); got != want {
			t.Errorf("trusts %q: %t, want %t", peer, got, want)
		}
	}
	if (clientaddr.Resolver{}).TrustsPeer("127.0.0.1:443") {
		t.Error("trusts a peer without any trusted proxy")
	}
}

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

func BenchmarkLimitKey(b *testing.B) {
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
