package payments

import (
	"testing"
)

// A key travels to the API only, and never in plain text over a network.
func TestParseAPIURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://pay.example.com/":                                    "https://pay.example.com",
		"https://pay.example.com/base/":                               "https://pay.example.com/base",
		"http://127.0.0.1:8080":                                       "http://127.0.0.1:8080",
		"http://[::1]:8080":                                           "http://[::1]:8080",
		"http://localhost:8080":                                       "http://localhost:8080",
		"http://merchant-operator-apiserver.system.svc:8080":          "http://merchant-operator-apiserver.system.svc:8080",
		"http://merchant-operator-apiserver.system.svc.cluster.local": "http://merchant-operator-apiserver.system.svc.cluster.local",
		"http://pay.example.com":                                      "",
		"http://203.0.113.7":                                          "",
		"http://svc.example.com":                                      "",
		"https://user:word@pay.example.com":                           "",
		"https://pay.example.com?x=y":                                 "",
		"pay.example.com":                                             "",
		"ftp://pay.example.com":                                       "",
		"":                                                            "",
	} {
		got, err := parseAPIURL(text)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is taken", text)
		case want != "" && (err != nil || got.String() != want):
			t.Errorf("%q is %v (%v), want %s", text, got, err, want)
		}
	}
}
