package console

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
)

// parseOrigin returns an origin as browsers write it: the host in lower case and in ASCII, and no
// port that its scheme has anyway. It accepts scheme and host only: cookies and redirects of the
// console are for a whole origin.
func parseOrigin(flag, text string) (*url.URL, error) {
	origin, err := url.Parse(text)
	if err != nil || origin.Hostname() == "" || strings.TrimSuffix(origin.Path, "/") != "" || origin.RawQuery != "" || origin.User != nil || !httpserver.Confidential(origin) {
		return nil, fmt.Errorf("%s %q is not an origin; use a form like https://console.example (http only on a loopback address)", flag, text)
	}
	host := origin.Host
	if address, err := netip.ParseAddr(origin.Hostname()); err == nil && address.Is6() {
		host = strings.Replace(host, origin.Hostname(), address.String(), 1)
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) { // what is ASCII already is as people use it
		if host, err = idna.Lookup.ToASCII(origin.Hostname()); err != nil {
			return nil, fmt.Errorf("%s %q has no valid host name", flag, text)
		}
		if origin.Port() != "" {
			host = net.JoinHostPort(host, origin.Port())
		}
	}
	return &url.URL{Scheme: origin.Scheme, Host: canonicalHost(origin.Scheme, host)}, nil
}

// canonicalHost returns the host of a URL or of a request in lower case, without a port that the
// scheme has anyway. Some proxies send that.
func canonicalHost(scheme, host string) string {
	port := map[string]string{"https": ":443", "http": ":80"}[scheme]
	return strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(host), ":"), port)
}

func checkOrigin(flag, text string) error {
	_, err := parseOrigin(flag, text)
	return err
}

func checkOptionalOrigin(flag, text string) error {
	if text == "" {
		return nil
	}
	return checkOrigin(flag, text)
}
