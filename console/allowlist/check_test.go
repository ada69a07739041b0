package allowlist

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
)

// FuzzAllowlist compares what a person reads about an address they ask for with what they read about their own, which comes the way of
// a caller of the API.
func FuzzAllowlist(f *testing.F) {
	for _, address := range []string{
		"203.0.113.7", "::ffff:203.0.113.7", "2001:db8::1", "fe80::1%eth0", "203.0.113.7:443", "[2001:db8::1]:443", " 203.0.113.7 ",
		"203.0.113.07", "203.0.113.0/24", "198.51.100.7", "::", "nonsense",
	} {
		f.Add("203.0.113.0/24 2001:db8::/48 fe80::1", address)
		f.Add("", address)
	}
	clients, err := clientaddr.NewResolver([]netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")})
	if err != nil {
		f.Fatal(err)
	}
	pages, err := web.NewPages(time.Now)
	if err != nil {
		f.Fatal(err)
	}
	h := New(Options{Clients: clients, Pages: pages})
	f.Fuzz(func(t *testing.T, entries, address string) {
		if strings.Contains(address, ",") || strings.Trim(address, " \t") == "" {
			t.Skip() // several addresses, or nothing is asked
		}
		merchant := &v1alpha1.Merchant{}
		for entry := range strings.FieldsSeq(entries) {
			merchant.Spec.IPAllowlist = append(merchant.Spec.IPAllowlist, v1alpha1.IPBlock(entry))
		}
		sent := httptest.NewRequest(http.MethodGet, "/?address="+url.QueryEscape(address), http.NoBody)
		sent.RemoteAddr = "192.0.2.1:1"
		sent.Header["X-Forwarded-For"] = []string{address}
		check, err := h.Check(&web.Request{Request: sent, Merchant: merchant}, nil)
		if err != nil {
			return // such a list is not published
		}
		want := "Requests from this address are refused."
		switch {
		case check.Own == "":
			want = "This is not an IP address. Use a form like 203.0.113.7."
		case check.OwnPasses:
			want = "Requests from this address pass."
		}
		if check.Answer != want {
			t.Errorf("%q on the list %q: %q, but as one's own: %q", address, entries, check.Answer, want)
		}
	})
}
