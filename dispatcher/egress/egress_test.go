package egress_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/egress"
	"github.com/merchant-operator/merchant-operator/test/dnstest"
	"github.com/merchant-operator/merchant-operator/test/freeport"
)

func guard(t testing.TB, open ...string) egress.Guard {
	t.Helper()
	return guardOf(t, egress.Rules{Allow: prefixes(open...), Deny: egress.DefaultDeny(), DenyDomains: egress.DefaultDenyDomains()})
}

func guardOf(t testing.TB, rules egress.Rules) egress.Guard {
	t.Helper()
	g, err := egress.NewGuard(rules)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func prefixes(texts ...string) []netip.Prefix {
	blocks := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		blocks = append(blocks, netip.MustParsePrefix(text))
	}
	return blocks
}

// special are the blocks of the IANA special-purpose address registries for IPv4 and IPv6, as of 2026,
// with those that are globally reachable all the same: nobody receives webhooks at them. To these come
// multicast, what IANA has set aside for no use yet, and what clouds keep for themselves.
var special = map[string]string{
	"this network":                 "0.0.0.0/8",
	"private 10":                   "10.0.0.0/8",
	"shared (CGNAT)":               "100.64.0.0/10",
	"metadata of Alibaba Cloud":    "100.100.100.200/32",
	"loopback":                     "127.0.0.0/8",
	"Azure's host":                 "168.63.129.16/32",
	"GKE's Services":               "34.118.224.0/20",
	"IBM's private services":       "166.8.0.0/14",
	"link-local":                   "169.254.0.0/16",
	"metadata":                     "169.254.169.254/32",
	"private 172.16":               "172.16.0.0/12",
	"protocol assignments":         "192.0.0.0/24",
	"service continuity":           "192.0.0.0/29",
	"dummy":                        "192.0.0.8/32",
	"port control anycast":         "192.0.0.9/32",
	"TURN anycast":                 "192.0.0.10/32",
	"NAT64 discovery":              "192.0.0.170/31",
	"metadata of Oracle Cloud":     "192.0.0.192/32",
	"documentation 1":              "192.0.2.0/24",
	"AS112 v4":                     "192.31.196.0/24",
	"AMT":                          "192.52.193.0/24",
	"6to4 relays":                  "192.88.99.0/24",
	"private 192.168":              "192.168.0.0/16",
	"direct AS112":                 "192.175.48.0/24",
	"benchmarking":                 "198.18.0.0/15",
	"documentation 2":              "198.51.100.0/24",
	"documentation 3":              "203.0.113.0/24",
	"multicast v4":                 "224.0.0.0/4",
	"reserved":                     "240.0.0.0/4",
	"broadcast":                    "255.255.255.255/32",
	"unspecified":                  "::/128",
	"loopback v6":                  "::1/128",
	"IPv4-compatible":              "::/96",
	"IPv4-mapped":                  "::ffff:0:0/96",
	"IPv4-mapped loopback":         "::ffff:127.0.0.0/104",
	"IPv4-translated":              "::ffff:0:0:0/96",
	"NAT64 of loopback":            "64:ff9b::7f00:1/128",
	"NAT64 of metadata":            "64:ff9b::a9fe:a9fe/128",
	"NAT64 of private 10":          "64:ff9b::a00:0/104",
	"NAT64 of Azure's host":        "64:ff9b::a83f:8110/128",
	"NAT64 of GKE's Services":      "64:ff9b::2276:e000/116",
	"local NAT64":                  "64:ff9b:1::/48",
	"discard":                      "100::/64",
	"dummy v6":                     "100:0:0:1::/64",
	"protocol assignments v6":      "2001::/23",
	"Teredo":                       "2001::/32",
	"benchmarking v6":              "2001:2::/48",
	"AMT v6":                       "2001:3::/32",
	"AS112 v6":                     "2001:4:112::/48",
	"deprecated ORCHID":            "2001:10::/28",
	"ORCHIDv2":                     "2001:20::/28",
	"remote identification":        "2001:30::/28",
	"documentation v6":             "2001:db8::/32",
	"6to4":                         "2002::/16",
	"6to4 of loopback":             "2002:7f00:1::/48",
	"direct AS112 v6":              "2620:4f:8000::/48",
	"documentation v6, the larger": "3fff::/20",
	"set aside by IANA":            "4000::/3",
	"segment routing":              "5f00::/16",
	"unique local":                 "fc00::/7",
	"metadata of AWS v6":           "fd00:ec2::254/128",
	"metadata of Google Cloud v6":  "fd20:ce::254/128",
	"link-local v6":                "fe80::/10",
	"site-local":                   "fec0::/10",
	"multicast v6":                 "ff00::/8",
	"ISATAP":                       "2606:4700::5efe:0:0/96",
	"ISATAP, universal":            "2606:4700::200:5efe:0:0/96",
}

func TestCheck_SpecialAddresses(t *testing.T) {
	g := guard(t)
	for name, text := range special {
		block := netip.MustParsePrefix(text)
		for _, address := range []netip.Addr{block.Addr(), inside(block), last(block)} {
			if err := g.Check(address); !errors.Is(err, egress.ErrRefused) {
				t.Errorf("%s: %s gives %v, want ErrRefused", name, address, err)
			}
		}
	}
	for _, address := range []netip.Addr{
		{}, netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("2606:4700::1111%eth0"),
		netip.MustParseAddr("::ffff:1.1.1.1"), // public, and no way to write it
	} {
		if err := g.Check(address); !errors.Is(err, egress.ErrRefused) {
			t.Errorf("%s gives %v, want ErrRefused", address, err)
		}
	}
}

func TestCheck_PublicAddresses(t *testing.T) {
	g := guard(t)
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:82b::200e", "2001:4860:4860::8888",
		// what DNS64 answers for public IPv4 receivers
		"64:ff9b::808:808", "64:ff9b::5db8:d822",
		// the neighbours of what is refused
		"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"34.118.223.255", "34.118.240.0", "166.7.255.255", "166.12.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255",
		"192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.101.0",
		"203.0.112.255", "203.0.114.0", "223.255.255.255",
		"2001:200::", "2001:db7:ffff::", "2001:db9::", "2003::", "2606:4700::5eff:0:0", "3ffe:ffff::",
	} {
		if err := g.Check(netip.MustParseAddr(text)); err != nil {
			t.Errorf("%s: %v, want it let through", text, err)
		}
	}
}

func TestCheck_AllowedBlocks(t *testing.T) {
	g := guard(t, "10.1.0.0/16", "fd12::/16")
	for text, want := range map[string]error{
		"10.1.2.3": nil, "fd12::1": nil, "1.1.1.1": nil,
		"64:ff9b::a01:203": nil, // DNS64's address of 10.1.2.3
		"10.2.0.1":         egress.ErrRefused, "127.0.0.1": egress.ErrRefused, "169.254.169.254": egress.ErrRefused,
		"fd00:ec2::254": egress.ErrRefused, "::ffff:10.1.2.3": egress.ErrRefused, "64:ff9b::a02:1": egress.ErrRefused,
	} {
		if err := g.Check(netip.MustParseAddr(text)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// An allowed block of IPv6 opens no IPv4 address that is not allowed by itself.
func TestCheck_EmbeddedIPv4(t *testing.T) {
	for _, test := range []struct {
		name, allow, address string
		want                 error
	}{
		{"NAT64 of a public one", "64:ff9b::/96", "64:ff9b::808:808", nil},
		{"NAT64 of metadata", "64:ff9b::/96", "64:ff9b::a9fe:a9fe", egress.ErrRefused},
		{"NAT64 of GKE's Services", "64:ff9b::/96", "64:ff9b::34.118.224.1", egress.ErrRefused},
		{"everything allowed", "::/0", "64:ff9b::a9fe:a9fe", egress.ErrRefused},
		{"IPv4-mapped", "::/0", "::ffff:169.254.169.254", egress.ErrRefused},
		{"IPv4-mapped, public", "::/0", "::ffff:8.8.8.8", egress.ErrRefused},
		{"IPv4-compatible", "::/0", "::169.254.169.254", egress.ErrRefused},
		{"IPv4-translated", "::/0", "::ffff:0:169.254.169.254", egress.ErrRefused},
		{"loopback", "::1/128", "::1", nil},
		{"6to4 of a public one", "2002::/16", "2002:808:808::1", nil},
		{"6to4 of metadata", "2002::/16", "2002:a9fe:a9fe::1", egress.ErrRefused},
		{"6to4 of metadata that looks like ISATAP of a public one", "2002::/16", "2002:a9fe:a9fe::5efe:8.8.8.8", egress.ErrRefused},
		{"Teredo of public ones", "2001::/32", "2001:0:808:808:0:0:f7f7:f7f7", nil},
		{"Teredo with an internal server", "2001::/32", "2001:0:a9fe:a9fe:0:0:f7f7:f7f7", egress.ErrRefused},
		{"Teredo with an internal client", "2001::/32", "2001:0:808:808:0:0:5601:5601", egress.ErrRefused},
		{"ISATAP of metadata", "fd12::/16", "fd12::5efe:169.254.169.254", egress.ErrRefused},
		{"local NAT64, not allowed", "fd12::/16", "64:ff9b:1::808:808", egress.ErrRefused},
		{"local NAT64 of a public one", "64:ff9b:1:abcd::/96", "64:ff9b:1:abcd::808:808", nil},
		{"local NAT64 of metadata", "64:ff9b:1:abcd::/96", "64:ff9b:1:abcd::a9fe:a9fe", egress.ErrRefused},
		{"local NAT64 of 64 bits, a public one", "64:ff9b:1::/64", "64:ff9b:1::8:808:800:0", nil},
		{"local NAT64 of 64 bits, metadata", "64:ff9b:1::/64", "64:ff9b:1::a9:fea9:fe00:0", egress.ErrRefused},
		{"local NAT64 of 56 bits, metadata", "64:ff9b:1::/56", "64:ff9b:1:a9:fe:a9fe::", egress.ErrRefused},
		{"local NAT64 of 48 bits, a public one", "64:ff9b:1::/48", "64:ff9b:1:808:8:800::", nil},
		{"local NAT64 of 48 bits, metadata", "64:ff9b:1::/48", "64:ff9b:1:a9fe:a9:fe00::", egress.ErrRefused},
		{"local NAT64 that another gateway reads otherwise", "64:ff9b:1::/48", "64:ff9b:1:808:8:800:a9fe:a9fe", egress.ErrRefused},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := guard(t, test.allow).Check(netip.MustParseAddr(test.address)); !errors.Is(err, test.want) {
				t.Errorf("%s with %s allowed: %v, want %v", test.address, test.allow, err, test.want)
			}
		})
	}
}

// A platform may allow a network and deny the part of it where its cluster is.
func TestCheck_DeniedBlocks(t *testing.T) {
	g := guardOf(t, egress.Rules{Allow: prefixes("10.0.0.0/8"), Deny: prefixes("10.96.0.0/12", "2606:4700::/32")})
	for text, want := range map[string]error{
		"10.1.2.3": nil, "34.118.224.1": nil, "2a00:1450:4001:82b::200e": nil,
		"10.96.0.1": egress.ErrRefused, "64:ff9b::10.96.0.1": egress.ErrRefused, "2606:4700:4700::1111": egress.ErrRefused,
	} {
		if err := g.Check(netip.MustParseAddr(text)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// No address shows that it is a pod's, or that a provider's NAT64 leads to another one. docs/security.md asks platforms to deny such blocks.
func TestCheck_KnownToThePlatformOnly(t *testing.T) {
	unaware, told := guard(t), guardOf(t, egress.Rules{Deny: prefixes("2600:1f18:7::/48", "2a00:64::/96")})
	for what, text := range map[string]string{"a pod": "2600:1f18:7::8", "metadata by a provider's NAT64": "2a00:64::a9fe:a9fe"} {
		address := netip.MustParseAddr(text)
		if unaware.Check(address) != nil || told.Check(address) == nil {
			t.Errorf("%s, %s: %v, denied %v", what, text, unaware.Check(address), told.Check(address))
		}
	}
}

func TestCheck_ZeroGuard(t *testing.T) {
	if err := (egress.Guard{}).Check(netip.MustParseAddr("1.1.1.1")); !errors.Is(err, egress.ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
}

func TestNewGuard_InvalidRule(t *testing.T) {
	for _, test := range []struct {
		name, flag string
		rules      egress.Rules
	}{
		{"no block", "--webhook-allow-cidrs", egress.Rules{Allow: []netip.Prefix{{}}}},
		{"IPv4 in IPv6", "--webhook-allow-cidrs", egress.Rules{Allow: prefixes("::ffff:10.0.0.0/104")}},
		{"IPv4 in IPv6 denied", "--webhook-deny-cidrs", egress.Rules{Deny: prefixes("::ffff:10.0.0.0/104")}},
		{"part of a local NAT64 prefix", "--webhook-allow-cidrs", egress.Rules{Allow: prefixes("64:ff9b:1::/104")}},
		{"an empty domain", "--webhook-deny-domains", egress.Rules{DenyDomains: []string{"."}}},
		{"a URL for a domain", "--webhook-deny-domains", egress.Rules{DenyDomains: []string{"https://svc"}}},
	} {
		if _, err := egress.NewGuard(test.rules); err == nil || !strings.HasPrefix(err.Error(), test.flag+": ") {
			t.Errorf("%s: %v, want an error about %s", test.name, err, test.flag)
		}
	}
}

// inside returns an address of the block that is not at its edge, if the block has any.
func inside(block netip.Prefix) netip.Addr {
	return addHostBits(block, 0x5555_5555)
}

func last(block netip.Prefix) netip.Addr { return addHostBits(block, ^uint32(0)) }

// addHostBits sets those of the bits, repeated, that are not of the block's prefix.
func addHostBits(block netip.Prefix, bits uint32) netip.Addr {
	bytes := block.Addr().AsSlice()
	for i := 0; i < len(bytes); i += 4 {
		fixed := min(max(block.Bits()-8*i, 0), 32)
		mask := uint32(uint64(1)<<(32-fixed) - 1)
		binary.BigEndian.PutUint32(bytes[i:], binary.BigEndian.Uint32(bytes[i:])|bits&mask)
	}
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

// FuzzCheck asks of each address that passes what the standard library knows about it, and the same
// of every IPv4 address that some gateway could take out of it.
func FuzzCheck(f *testing.F) {
	for _, block := range special {
		f.Add(netip.MustParsePrefix(block).Addr().AsSlice())
	}
	f.Add(netip.MustParseAddr("2002:a9fe:a9fe::1").AsSlice())
	f.Add(netip.MustParseAddr("2606:4700::5efe:127.0.0.1").AsSlice())
	f.Add(netip.MustParseAddr("93.184.216.34").AsSlice())
	g := guard(f)
	f.Fuzz(func(t *testing.T, bytes []byte) {
		address, ok := netip.AddrFromSlice(bytes)
		if !ok || g.Check(address) != nil {
			return
		}
		if !public(address) || address.Is4In6() {
			t.Errorf("%s passes", address)
		}
		for form, hidden := range embedded(address) {
			if form != "NAT64" || !public(hidden) || g.Check(hidden) != nil { // what NAT64 translates to public IPv4 is public
				t.Errorf("%s passes, and is %s by %s", address, hidden, form)
			}
		}
	})
}

func public(address netip.Addr) bool {
	return address.IsGlobalUnicast() && !address.IsPrivate() && !address.IsLoopback() &&
		!address.IsLinkLocalUnicast() && !address.IsMulticast() && !address.IsUnspecified()
}

// embedded returns the IPv4 addresses within an IPv6 one, by the form that puts them there.
func embedded(address netip.Addr) map[string]netip.Addr {
	if !address.Is6() {
		return nil
	}
	bytes := address.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(bytes[i : i+4])) }
	found := map[string]netip.Addr{}
	for form, place := range map[string]struct {
		prefix string
		at     int
	}{
		"compatibility": {"::/96", 12},
		"translation":   {"::ffff:0:0:0/96", 12},
		"NAT64":         {"64:ff9b::/96", 12},
		"local NAT64":   {"64:ff9b:1::/48", 12},
		"6to4":          {"2002::/16", 2},
		"Teredo":        {"2001::/32", 4},
	} {
		if netip.MustParsePrefix(place.prefix).Contains(address) {
			found[form] = at(place.at)
		}
	}
	if marker := [4]byte(bytes[8:12]); marker == [4]byte{0, 0, 0x5e, 0xfe} || marker == [4]byte{2, 0, 0x5e, 0xfe} {
		found["ISATAP"] = at(12)
	}
	return found
}

const patience = 20 * time.Second

func TestDial_BlockedAddresses(t *testing.T) {
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
func TestDial_NameTurnsInternal(t *testing.T) {
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

// dialInPod names the address that the test binary dials in a pod instead of running its tests.
const dialInPod = "DIAL_IN_POD"

func TestMain(m *testing.M) {
	if address := os.Getenv(dialInPod); address != "" {
		_, _ = os.Stdout.WriteString(dialAddress(address))
		return
	}
	m.Run()
}

// dialAddress returns whom a Dialer with the system's resolver reaches, or its error.
func dialAddress(address string) string {
	g, err := egress.NewGuard(egress.Rules{Allow: prefixes("127.0.0.0/8"), DenyDomains: egress.DefaultDenyDomains()})
	if err != nil {
		return err.Error()
	}
	connection, err := egress.NewDialer(g, nil, patience).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = connection.Close() }()
	return connection.RemoteAddr().String()
}

// The search list of a pod would ask acme.dev as acme.dev.svc.cluster.local first, which is a Service of whoever owns the namespace dev.
func TestDial_SearchList(t *testing.T) {
	names := dnstest.StartForPods(t)
	names.Set("acme.dev", "127.0.0.1")
	for _, attacked := range []string{"acme.dev", "lapsed.dev", "hooks.acme.shop", "acme"} {
		for _, domain := range []string{"payments.svc.cluster.local", "svc.cluster.local", "cluster.local"} {
			names.Set(attacked+"."+domain, "127.0.0.2")
		}
	}
	server := listen(t)
	for _, test := range []struct{ name, host, want string }{
		{"a public name", "acme.dev", "127.0.0.1" + server.port},
		{"with its last dot", "acme.dev.", "127.0.0.1" + server.port},
		{"a name that lapsed", "lapsed.dev", "no such host"},
		{"three labels", "hooks.acme.shop", "no such host"},
		{"one label", "acme", egress.ErrRefused.Error()},
		{"a Service by its short name", "acme.dev.svc", egress.ErrRefused.Error()},
		{"a Service", "ACME.dev.svc.Cluster.local", egress.ErrRefused.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			program, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			pod := names.Pod("payments", program)
			pod.Env = append(os.Environ(), dialInPod+"="+test.host+server.port)
			got, err := pod.CombinedOutput()
			if err != nil || !strings.Contains(string(got), test.want) {
				t.Errorf("%s: %s, %v; want %s", test.host, got, err, test.want)
			}
		})
	}
}

// The names of a cluster's Services are refused by name, so that nobody learns which exist.
func TestDial_DeniedDomain(t *testing.T) {
	names := dnstest.Start(t)
	server := listen(t)
	rules := egress.Rules{Allow: prefixes("127.0.0.0/8"), DenyDomains: []string{".K8s.example."}}
	dialer := egress.NewDialer(guardOf(t, rules), names.Resolver(), patience)
	for host, want := range map[string]error{
		"api.k8s.example": egress.ErrRefused, "K8S.Example.": egress.ErrRefused, "a.b.k8s.example.": egress.ErrRefused,
		"notk8s.example": nil, "api.svc": nil,
	} {
		names.Set(strings.ToLower(strings.TrimSuffix(host, ".")), "127.0.0.1")
		connection, err := dialer.DialContext(t.Context(), "tcp", host+server.port)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", host, err, want)
		}
		if err == nil {
			_ = connection.Close()
		}
	}
}

func TestDial_NameWithSomeAllowedAddresses(t *testing.T) {
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

// A receiver that is down comes back, whatever else its name means; and the error says nothing about the addresses.
func TestDial_AllowedAddressIsDown(t *testing.T) {
	names := dnstest.Start(t)
	dialer := egress.NewDialer(guard(t, "127.0.0.2/32"), names.Resolver(), patience)
	port, err := freeport.Choose() // nobody listens
	if err != nil {
		t.Fatal(err)
	}
	for name, addresses := range map[string][]string{
		"refused first": {"127.0.0.1", "127.0.0.2"},
		"both families": {"::1", "127.0.0.2"},
	} {
		names.Set("shop.example", addresses...)
		_, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort("shop.example", strconv.Itoa(port)))
		if err == nil || errors.Is(err, egress.ErrRefused) || strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "::1") {
			t.Errorf("%s: %v, want an error that is not ErrRefused and has no refused address", name, err)
		}
	}
}

// IPv4 within IPv6 has no block of its own to be opened, and would be another's.
func TestDial_IPv4InIPv6(t *testing.T) {
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

func TestDial_ErrorHidesTheAddress(t *testing.T) {
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
				_ = tcp.Close() // the connection of reached, the only one that writes
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
