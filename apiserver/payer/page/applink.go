package page

import (
	"errors"
	"fmt"
	"html/template"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// schemeForm is the syntax of a scheme in RFC 3986, section 3.1.
var schemeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// CheckScheme refuses schemes that cannot be in a link of the page: browsers run or show what follows some of them.
func CheckScheme(scheme string) error {
	if !schemeForm.MatchString(scheme) {
		return fmt.Errorf("%q is not a URI scheme; use for example pay", scheme)
	}
	if slices.Contains([]string{"javascript", "vbscript", "data", "blob", "file", "about"}, strings.ToLower(scheme)) {
		return fmt.Errorf("%q is a scheme of browsers; use one of a payment app, for example pay", scheme)
	}
	return nil
}

// CheckAppURL refuses what is no template of an address of a payment app: an https URL, or one of this machine, with the placeholder once
// after its host.
func CheckAppURL(pattern string) error {
	before, after, found := strings.Cut(pattern, session.IDPlaceholder)
	if !found || strings.ContainsAny(before+after, "{}") {
		return fmt.Errorf("must have %s once, as in https://pay.example.com/%[1]s", session.IDPlaceholder)
	}
	sample := session.NewID("aaaaaaaaaaaa", false).String()
	address, err := url.Parse(before + sample + after)
	if err != nil || strings.ContainsFunc(pattern, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("must be a URL of visible ASCII characters")
	}
	local := address.Hostname() == "localhost"
	if ip, err := netip.ParseAddr(address.Hostname()); err == nil {
		local = ip.IsLoopback()
	}
	switch {
	case address.Scheme != "https" && (address.Scheme != "http" || !local):
		return errors.New("must be an https URL, or an http URL of this machine")
	case address.Hostname() == "" || address.User != nil || strings.Contains(address.Host, sample):
		return fmt.Errorf("must have a host, no user info, and %s after the host", session.IDPlaceholder)
	}
	return nil
}

// openApp is what the button of the payment app leads to.
func (p *Payment) openApp() (template.URL, error) {
	if p.AppURL == "" {
		return appLink(p.Payload)
	}
	if err := CheckAppURL(strings.Replace(p.AppURL, p.ID.String(), session.IDPlaceholder, 1)); err != nil {
		return "", fmt.Errorf("link of the payment app: %w", err)
	}
	return template.URL(p.AppURL), nil //nolint:gosec // it was checked
}

// appLink is a payload as a link. html/template removes links of schemes that it does not know, unless they were checked.
func appLink(payload string) (template.URL, error) {
	scheme, rest, _ := strings.Cut(payload, "://qr/")
	if err := CheckScheme(scheme); err != nil {
		return "", fmt.Errorf("link of the payment app: %w", err)
	}
	if _, err := session.ParseID(rest); err != nil {
		return "", fmt.Errorf("link of the payment app: %w", err)
	}
	return template.URL(payload), nil //nolint:gosec // scheme and rest were checked
}
