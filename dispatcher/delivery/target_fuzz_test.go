package delivery

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzParseTarget holds that what is called is what was read: no user info, one scheme, the host that was looked at.
func FuzzParseTarget(f *testing.F) {
	for _, text := range []string{
		"https://shop.example/hooks", "http://shop.example", "https://shop.example@127.0.0.1/", "https://127.0.0.1:80@shop.example/",
		"https:///hooks", "https:shop.example", "//shop.example", "https://[::ffff:127.0.0.1]/", "https://shop.example\\@127.0.0.1/",
		"https://shop.example:443/?token=a#b", "HTTPS://SHOP.EXAMPLE/", "https://shop.example/\r\nHost: x", "gopher://127.0.0.1/", "https://%31%32%37.0.0.1/",
		"https://[fe80::1%25eth0]/", "https://0x7f.1/", "https://127.1/", "https://shop.example:0/",
	} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, allowHTTP bool) {
		target, err := parseTarget(text, allowHTTP)
		if err != nil {
			if len(text) > 12 && strings.Contains(err.Error(), text) {
				t.Fatalf("the error quotes %q", text)
			}
			return
		}
		if target.User != nil || target.Hostname() == "" || (target.Scheme != "https" && (target.Scheme != "http" || !allowHTTP)) {
			t.Fatalf("%q is %#v", text, target)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.String(), http.NoBody)
		if err != nil {
			return // it is refused a step later
		}
		// What is called after all is the host that was read.
		if request.URL.Hostname() != target.Hostname() || request.URL.Scheme != target.Scheme || request.URL.User != nil {
			t.Fatalf("%q is read as %s and called as %s", text, target.Host, request.URL.Host)
		}
	})
}
