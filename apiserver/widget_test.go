package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestTheWidgetIsForEveryOrigin(t *testing.T) {
	f := newFixture(t)
	r := f.start()
	got := r.call(http.MethodGet, "/widget/v1.js", "", "", "Origin", "https://shop.example").want(t, http.StatusOK)
	for name, want := range map[string]string{
		"Content-Type": "text/javascript; charset=utf-8", "Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin",
		"Cache-Control": "public, max-age=300", "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding", "Set-Cookie": "",
	} {
		if got := got.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !strings.Contains(string(got.raw), "customElements.define('payment-session'") {
		t.Errorf("the script is %.80q", got.raw)
	}
	tag := got.header.Get("ETag")
	again := r.call(http.MethodGet, "/widget/v1.js", "", "", "If-None-Match", tag).want(t, http.StatusNotModified)
	if len(again.raw) > 0 || again.header.Get("ETag") != tag || again.header.Get("Cache-Control") != "public, max-age=300" {
		t.Errorf("unchanged: %v %q", again.header, again.raw)
	}
	packed := r.call(http.MethodGet, "/widget/v1.js", "", "", "Accept-Encoding", "gzip", "Range", "bytes=0-9").want(t, http.StatusOK)
	if packed.header.Get("Content-Encoding") != "gzip" || len(packed.raw) >= len(got.raw) || packed.header.Get("ETag") != tag {
		t.Errorf("compressed: %v, %d bytes", packed.header, len(packed.raw))
	}
	if head := r.call(http.MethodHead, "/widget/v1.js", "", "").want(t, http.StatusOK); len(head.raw) > 0 {
		t.Errorf("HEAD has a body of %d bytes", len(head.raw))
	}
	r.call(http.MethodGet, "/widget/v2.js", "", "").want(t, http.StatusNotFound)
}
