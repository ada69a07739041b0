package browsertest

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A form can be filled in and sent, with and without scripts; the history leads back and forward.
func TestForms(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case r.URL.Path == "/favicon.ico":
			w.WriteHeader(http.StatusNoContent)
		case r.Method == http.MethodPost && r.URL.Path == "/start":
			http.Redirect(w, r, "/end?name="+r.PostFormValue("name"), http.StatusSeeOther)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintf(w, "<p>sent %s", html.EscapeString(r.PostFormValue("name")))
		default:
			fmt.Fprintf(w, `<p>%s<form method="post"><input name="name" value="before"><button>Send</button></form>`, html.EscapeString(r.URL.RawQuery))
		}
	}))
	t.Cleanup(server.Close)
	for _, settings := range []Settings{{}, {NoJavaScript: true}} {
		page := browser.NewPage(t, settings)
		page.AllowErrors("ERR_CACHE_MISS")
		page.Open(server.URL + "/start")
		page.Fill("[name=name]", "after")
		if status := page.Click("button"); status != http.StatusOK || page.Text("p") != "name=after" {
			t.Errorf("%+v: %d %s", settings, status, page.Text("body"))
		}
		page.Fill("[name=name]", "")
		page.Fill("[name=name]", "last")
		if status := page.Click("button"); status != http.StatusAccepted || page.Text("p") != "sent last" {
			t.Errorf("%+v: %d %s", settings, status, page.Text("body"))
		}
		page.Reload()
		if page.Text("p") != "sent last" {
			t.Errorf("%+v: a reload shows %s", settings, page.Text("body"))
		}
		page.Back()
		if page.Text("p") != "name=after" {
			t.Errorf("%+v: Back shows %s", settings, page.Text("body"))
		}
		page.Forward() // to the page of a form, which no browser keeps
		if text := page.Text("body"); strings.Contains(text, "sent") {
			t.Errorf("%+v: Forward shows %s", settings, text)
		}
		if history := page.History(); len(history) < 3 || history[len(history)-1] != server.URL+"/end?name=after" {
			t.Errorf("%+v: the history is %q", settings, history)
		}
	}
}
