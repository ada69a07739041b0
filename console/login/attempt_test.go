package login

import (
	"strings"
	"testing"
)

func TestReturnTo(t *testing.T) {
	for text, want := range map[string]string{
		"/merchants/shops/acme?address=1.2.3.4": "/merchants/shops/acme?address=1.2.3.4",
		"":                                      "/",
		"https://evil.example/":                 "/",
		"//evil.example/":                       "/",
		"///evil.example":                       "/",
		`/\evil.example`:                        "/",
		`\\evil.example`:                        "/",
		"/%5cevil.example":                      "/%5cevil.example", // a path to browsers
		"javascript:alert(1)":                   "/",
		"/a\r\nSet-Cookie: a=b":                 "/",
		"/\tevil":                               "/",
		"/sign-in":                              "/",
		"/callback?code=a":                      "/",
		"/" + strings.Repeat("a", 2000):         "/",
	} {
		if got := ownPath(text); got != want {
			t.Errorf("%q leads to %q, want %q", text, got, want)
		}
	}
}
