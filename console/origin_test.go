package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// However a person writes the URL of the console, and a proxy the host of a request: it is the origin that a browser sees.
func TestOrigin_WrittenOtherwise(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ external, want, host string }{
		"plain":                       {"https://console.example", "https://console.example", "console.example"},
		"a slash at the end":          {"https://console.example/", "https://console.example", "console.example"},
		"the scheme's port":           {"https://console.example:443", "https://console.example", "console.example"},
		"a proxy that sends the port": {"https://console.example", "https://console.example", "console.example:443"},
		"upper case":                  {"https://Console.Example", "https://console.example", "console.example"},
		"another port":                {"https://Console.Example:8443", "https://console.example:8443", "console.example:8443"},
		"umlauts":                     {"https://Käse.example", "https://xn--kse-qla.example", "xn--kse-qla.example"},
		"an underscore":               {"https://my_console.example", "https://my_console.example", "my_console.example"},
		"an address":                  {"https://[2001:DB8::1]:443", "https://[2001:db8::1]", "[2001:db8::1]"},
		"an address written out":      {"https://[2001:0DB8:0:0::1]:8443", "https://[2001:db8::1]:8443", "[2001:db8::1]:8443"},
		"a colon at the end":          {"https://console.example:", "https://console.example", "console.example"},
		"umlauts of two characters":   {"https://Ka\u0308se.example", "https://xn--kse-qla.example", "xn--kse-qla.example"},
		"a sharp s":                   {"https://stra\u00dfe.example", "https://xn--strae-oqa.example", "xn--strae-oqa.example"},
		"dots of another script":      {"https://k\u00e4se\u3002example", "https://xn--kse-qla.example", "xn--kse-qla.example"},
		"port 80 of http":             {"http://127.0.0.1:80", "http://127.0.0.1", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(o *Options) { o.ExternalURL = test.external })
			signIn := func(host string) *httptest.ResponseRecorder {
				answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/sign-in", nil)
				request.Host = host
				f.handler().ServeHTTP(answer, request)
				return answer
			}
			answer := signIn(test.host)
			if leads := answer.Header().Get("Location"); answer.Code != http.StatusSeeOther || !strings.Contains(leads, url.QueryEscape(test.want+"/callback")) {
				t.Errorf("Host %s: %d, to %s", test.host, answer.Code, leads)
			}
			for _, host := range []string{"evil.example", test.host + ".", test.host + ":1", "x" + test.host} {
				if answer := signIn(host); answer.Code != http.StatusMisdirectedRequest {
					t.Errorf("Host %s: %d", host, answer.Code)
				}
			}
		})
	}
}

func TestOrigin_Refused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "console.example", "https://", "https://:443", "https://console.example/path", "https://a b.example", "https://a@console.example", "https://-\u00e4.example", "http://console.example"} {
		if origin, err := parseOrigin("--external-url", text); err == nil || !strings.Contains(err.Error(), "--external-url") {
			t.Errorf("%q is %v, %v", text, origin, err)
		}
	}
}
