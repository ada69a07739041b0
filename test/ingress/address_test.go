package ingress

import (
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// The allowlist has a till in the shop; everybody else is outside.
const (
	till     = "127.0.0.2"
	outside  = "127.0.0.3"
	tillIPv6 = "::1"
)

// forwarded are headers of clients, and whether the API accepts a key with them.
var forwarded = map[string]struct {
	from    string
	headers []string // of X-Forwarded-For
	allowed bool
}{
	"the till":                              {till, nil, true},
	"the till, forged":                      {till, []string{outside}, true},
	"the till, malformed":                   {till, []string{"somebody, <script>"}, true},
	"outside":                               {outside, nil, false},
	"outside, forged":                       {outside, []string{till}, false},
	"outside, forged twice":                 {outside, []string{till, till}, false},
	"outside, a list":                       {outside, []string{till + ", " + till + ", " + proxyAddress}, false},
	"outside, as the proxy":                 {outside, []string{till + ", " + proxyAddress}, false},
	"outside, empty":                        {outside, []string{""}, false},
	"outside, IPv4 in IPv6":                 {outside, []string{"::ffff:" + till}, false},
	"outside, in IPv6":                      {outside, []string{tillIPv6}, false},
	"the till, in IPv6":                     {tillIPv6, nil, true},
	"the till in IPv6, forged":              {tillIPv6, []string{outside}, true},
	"the till in IPv6, with a port, forged": {tillIPv6, []string{"[2001:db8::7]:443"}, true},
}

// Whatever a client writes into X-Forwarded-For, its own address decides.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	key := shop(t, func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{till, tillIPv6} })
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, name, replicas...)
			for range 2 * len(replicas) { // one after the other, and the other way round
				await(t, "the key works", func() bool { return me(t, "http://"+p.IPv4, key, till) == http.StatusOK })
			}
			for name, test := range forwarded {
				base := "http://" + p.IPv4
				if test.from == tillIPv6 {
					base = "http://" + p.IPv6
				}
				want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[test.allowed]
				for range replicas {
					if got := me(t, base, key, test.from, test.headers...); got != want {
						t.Errorf("%s: %d, want %d", name, got, want)
					}
				}
			}
		})
	}
	// Around the proxy nobody is believed.
	if got := me(t, replicas[0].Public, key, outside, till); got != http.StatusUnauthorized {
		t.Errorf("around the proxy: %d", got)
	}
}

// me is the status of a request with a key, from an address, with these headers X-Forwarded-For.
func me(t *testing.T, base, key, from string, headers ...string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+fixture.Me, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header["X-Forwarded-For"] = headers
	answer, err := client(t, from).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}
