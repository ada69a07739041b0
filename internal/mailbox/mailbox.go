// Package mailbox says to which addresses a receipt may go, and how an address is written in SMTP.
// Payers and cashiers type these addresses, so a text that is none is an ordinary case and no
// error.
package mailbox

import (
	"net/mail"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxLength of an address, in bytes: a path of RFC 5321 has 256, with its angle brackets.
const maxLength = 254

// localDomains are last labels of names that lead into a private network, or nowhere.
var localDomains = []string{"arpa", "corp", "home", "internal", "invalid", "lan", "local", "localdomain", "localhost", "svc"}

// international writes a domain as browsers do (UTS 46): other spellings of a letter, a digit or a dot become the one of ASCII.
var international = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true))

// Trim removes what keyboards, forms and clipboards leave around an address: white space, line breaks and invisible characters.
func Trim(text string) string {
	return strings.TrimFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) })
}

// Recipient returns the address of a mailbox on the internet as SMTP wants it, with its domain in ASCII. false: the text is
// something else, such as two addresses or one with a display name; or an address literal, a local name or a route through
// another host (a%b@c, a!b@c), which would steer the platform's mail server.
func Recipient(text string) (address string, ok bool) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 || len(text) > maxLength { // most charges have no address; a domain in ASCII may be shorter than as typed
		return "", false
	}
	// A parsed address that differs from the text had a display name, angle brackets, a comment, quotes or space around it.
	parsed, err := mail.ParseAddress(text)
	if err != nil || parsed.Name != "" || parsed.Address != text {
		return "", false
	}
	local := text[:at]
	domain, err := ASCIIDomain(text[at+1:]) // before any other rule, because it may become a local name or an IP address
	notPrinted := func(r rune) bool { return !unicode.IsPrint(r) }
	if err != nil || !isPublic(domain) || strings.ContainsAny(local, `%!:"@`) || strings.ContainsFunc(local, notPrinted) {
		return "", false
	}
	if address = local + "@" + domain; len(address) > maxLength {
		return "", false
	}
	return address, true
}

// isPublic reports whether a domain in ASCII has at least two labels, the last of which may be one of the internet.
func isPublic(domain string) bool {
	labels := strings.Split(strings.ToLower(domain), ".")
	last := labels[len(labels)-1]
	notLetter := func(r rune) bool { return r < 'a' || r > 'z' }
	// An ASCII domain may hold anything up to here, such as the signs of a route.
	notName := func(r rune) bool { return notLetter(r) && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.' }
	switch {
	case len(labels) < 2, slices.Contains(labels, ""), strings.ContainsFunc(strings.ToLower(domain), notName):
		return false
	case strings.ContainsFunc(last, notLetter) && !strings.HasPrefix(last, "xn--"):
		return false
	}
	return !slices.Contains(localDomains, last)
}

// ASCIIDomain returns an internationalized domain in punycode, and any other as it is.
func ASCIIDomain(domain string) (string, error) {
	if !strings.ContainsFunc(domain, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return domain, nil
	}
	return international.ToASCII(domain)
}
