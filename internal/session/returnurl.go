package session

import (
	"cmp"
	"net/url"
	"strings"
)

// IDPlaceholder stands for the id of a session in URLs that are known before the session.
const IDPlaceholder = "{sessionId}"

const maxReturnURLBytes = 512

func validReturnURL(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && parsed.Scheme == "https" && parsed.Hostname() != "" && parsed.User == nil &&
		len(text) <= maxReturnURLBytes && isPrintableASCII(text) &&
		!strings.ContainsAny(strings.ReplaceAll(text, IDPlaceholder, ""), "{} ")
}

// AllowsReturnURL reports whether the return URL of a charge has the scheme, host and port of the
// return URL of its Merchant. So the Merchant's owner decides which hosts payers are sent to;
// whoever only has a key, maybe a stolen one, chooses a page there.
func AllowsReturnURL(merchantURL, chargeURL string) bool {
	allowed, err := url.Parse(merchantURL)
	if err != nil || allowed.Hostname() == "" {
		return false
	}
	asked, err := url.Parse(chargeURL)
	const httpsPort = "443"
	return err == nil && asked.Scheme == allowed.Scheme && strings.EqualFold(asked.Hostname(), allowed.Hostname()) &&
		cmp.Or(asked.Port(), httpsPort) == cmp.Or(allowed.Port(), httpsPort)
}

// ReturnURL returns where the page of a session leads after its end: to the return URL of the
// charge if the Merchant's allows it, else to that of the Merchant. Either may be empty, and so the
// result.
func ReturnURL(id ID, merchantURL, chargeURL string) string {
	leads := merchantURL
	if AllowsReturnURL(merchantURL, chargeURL) {
		leads = chargeURL
	}
	return strings.ReplaceAll(leads, IDPlaceholder, id.String())
}
