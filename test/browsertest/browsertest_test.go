package browsertest

import (
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/merchant-operator/merchant-operator/test/await"
)

var browser *Browser

func TestMain(m *testing.M) {
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

func runTests(m *testing.M) error {
	started, closeBrowser, err := New()
	if err != nil {
		return err
	}
	defer closeBrowser()
	browser = started
	m.Run()
	return nil
}

// serve has one page of each path, and a strict policy.
func serve(t *testing.T, pages map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		switch {
		case strings.HasSuffix(r.URL.Path, ".js"):
			w.Header().Set("Content-Type", "text/javascript")
		default:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", "default-src 'self'")
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const good = `<!doctype html><html lang="en"><head><title>Good</title><meta name="viewport" content="width=device-width">
	<link rel="icon" href="/icon.js"></head><body><main><h1>Hello</h1><a href="/other">Other</a></main>`

// recorder is a test that may fail.
type recorder struct {
	testing.TB

	failed   bool
	said     []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Failed() bool        { return r.failed }
func (r *recorder) Cleanup(do func())   { r.cleanups = append(r.cleanups, do) }
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Errorf(f string, a ...any) {
	r.failed = true
	for _, argument := range a {
		if text, ok := argument.(string); ok {
			r.said = append(r.said, text)
		}
	}
}

// An error of a page fails its test.
func TestPage_ErrorsFailItsTest(t *testing.T) {
	url := serve(t, map[string]string{
		"/console":    `<!doctype html><title>x</title><script src="/console.js"></script>`,
		"/throws":     `<!doctype html><title>x</title><script src="/throws.js"></script>`,
		"/inline":     `<!doctype html><title>x</title><script>1</script>`,
		"/style":      `<!doctype html><title>x</title><p style="color: red">x`,
		"/foreign":    `<!doctype html><title>x</title><script src="http://127.0.0.1:1/x.js"></script>`,
		"/missing":    `<!doctype html><title>x</title><script src="/missing.js"></script>`,
		"/console.js": `console.error('oh no')`,
		"/throws.js":  `throw new Error('it broke')`,
	})
	for path, want := range map[string]string{
		"/console": "oh no", "/throws": "it broke", "/inline": "Content Security Policy", "/style": "Content Security Policy",
		"/foreign": "Content Security Policy", "/missing": "404",
	} {
		test := &recorder{TB: t}
		page := browser.NewPage(test, Settings{})
		page.Open(url + path)
		for _, cleanup := range slices.Backward(test.cleanups) {
			cleanup()
		}
		if !test.failed || !strings.Contains(strings.Join(test.said, "\n"), want) {
			t.Errorf("%s: failed %v with %q, want an error about %q", path, test.failed, test.said, want)
		}
	}
}

func TestSettings(t *testing.T) {
	url := serve(t, map[string]string{"/": good, "/icon.js": "", "/js": strings.Replace(good, "</main>", `<p id="js"></p></main><script src="/it.js"></script>`, 1), "/it.js": `document.getElementById('js').textContent = 'scripted'`})
	page := browser.NewPage(t, Settings{Width: 320, Height: 500, Language: "ar", ClockShift: 24 * time.Hour, Media: map[string]string{"prefers-color-scheme": "dark", "forced-colors": "active"}})
	if status := page.Open(url); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	if width := Eval[int](page, "innerWidth"); width != 320 {
		t.Errorf("%d pixels wide", width)
	}
	if language := Eval[string](page, "navigator.language"); language != "ar" {
		t.Errorf("language %q", language)
	}
	if !Eval[bool](page, "matchMedia('(prefers-color-scheme: dark)').matches && matchMedia('(forced-colors: active)').matches") {
		t.Error("neither dark nor of forced colours")
	}
	for _, now := range []string{"Date.now()", "new Date().getTime()", "Date.parse(new Date().toISOString())"} {
		if shift := time.Duration(Eval[float64](page, now+" - performance.timeOrigin - performance.now()") * float64(time.Millisecond)); shift < 24*time.Hour-time.Minute {
			t.Errorf("%s is shifted by %s", now, shift)
		}
	}
	page.SetMedia("print", nil)
	if !Eval[bool](page, "matchMedia('print').matches && !matchMedia('(prefers-color-scheme: dark)').matches") {
		t.Error("not in print")
	}

	plain := browser.NewPage(t, Settings{NoJavaScript: true})
	plain.Open(url + "/js")
	if found := plain.Violations(); len(found) > 0 {
		t.Errorf("without JavaScript: %q", found)
	}
	if text := plain.Text("#js"); text != "" {
		t.Errorf("without JavaScript: %q", text)
	}
	page.Open(url + "/js")
	page.Until("the script ran", "document.getElementById('js').textContent === 'scripted'")
}

func TestViolations(t *testing.T) {
	url := serve(t, map[string]string{"/": good, "/icon.js": "", "/bad": strings.Replace(good, "<h1>", `<button></button><h1>`, 1)})
	page := browser.NewPage(t, Settings{})
	page.Open(url)
	if found := page.Violations(); len(found) > 0 {
		t.Errorf("of a good page: %q", found)
	}
	page.Open(url + "/bad")
	if found := page.Violations(); len(found) != 1 || !strings.HasPrefix(found[0], "button-name") {
		t.Errorf("of a button without a name: %q", found)
	}
	if _, err := unpackAxe(axeArchive[:len(axeArchive)/2]); err == nil {
		t.Error("half of axe-core is accepted")
	}
}

func TestPage_KeyboardAndTree(t *testing.T) {
	url := serve(t, map[string]string{"/": good, "/icon.js": ""})
	page := browser.NewPage(t, Settings{})
	page.Open(url)
	page.Press(kb.Tab)
	if focused := Eval[string](page, "document.activeElement.textContent"); focused != "Other" {
		t.Errorf("Tab went to %q", focused)
	}
	if tree := page.AccessibilityTree(); !slices.Contains(tree, Node{"link", "Other"}) || !slices.Contains(tree, Node{"heading", "Hello"}) {
		t.Errorf("accessibility tree %v", tree)
	}
	if png := page.Screenshot(); !strings.HasPrefix(string(png), "\x89PNG") {
		t.Errorf("a screenshot begins with %.4q", png)
	}
}

func TestPage_FrozenAndOffline(t *testing.T) {
	url := serve(t, map[string]string{"/": good, "/icon.js": ""})
	page := browser.NewPage(t, Settings{})
	page.Open(url)
	page.Do(`globalThis.log = []; for (const name of ['freeze', 'resume']) document.addEventListener(name, () => log.push(name));
		for (const name of ['offline', 'online']) addEventListener(name, () => log.push(name))`)
	page.Freeze()
	page.Resume()
	page.Until("it was frozen and resumed", "log.join() === 'freeze,resume'")

	fetches := "fetch('/?x').then(answer => answer.text()).then(() => 'answered', () => 'failed')"
	page.AllowErrors("net::ERR_INTERNET_DISCONNECTED")
	page.SetOffline(true)
	if got := Eval[string](page, fetches); got != "failed" {
		t.Errorf("offline: %s", got)
	}
	page.SetOffline(false)
	if got := Eval[string](page, fetches); got != "answered" {
		t.Errorf("online again: %s", got)
	}
	page.Until("the page has the events", "log.join() === 'freeze,resume,offline,online'")
	await.Until(t, Patience, "no request is in flight", func() bool { _, inFlight, _ := page.Requests(url + "/"); return inFlight == 0 })
	if total, _, most := page.Requests(url + "/"); total != 3 || most != 1 {
		t.Errorf("%d requests, at most %d at once", total, most)
	}
}

// Without a browser a test fails, and is not skipped.
func TestStart_NoBrowser(t *testing.T) {
	t.Setenv("CHROMIUM", "no-such-browser")
	if _, _, err := New(); err == nil || !strings.Contains(err.Error(), "CHROMIUM") {
		t.Errorf("CHROMIUM=no-such-browser: %v, want an error that names the variable", err)
	}
	t.Setenv("CHROMIUM", "")
	t.Setenv("PATH", t.TempDir())
	if _, _, err := New(); err == nil || !strings.Contains(err.Error(), "hack/install.sh browser") {
		t.Errorf("without any browser: %v, want an error that says how to install one", errors.Unwrap(err))
	}
}

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
