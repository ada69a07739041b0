// Package browsertest opens web pages in a real Chromium: one browser for the tests of a package, and a fresh profile for each
// page. A page that logs an error, throws an exception or violates its Content-Security-Policy fails its test.
package browsertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Patience bounds every wait: far more than anything needs on a busy machine.
const Patience = 60 * time.Second

// Browser is a running browser without a window.
type Browser struct{ ctx context.Context } //nolint:containedctx // chromedp keeps its browser in a context

// New starts a browser. It belongs to no test, for TestMain: the caller closes it.
func New() (browser *Browser, closeBrowser func(), err error) {
	executable, err := Executable()
	if err != nil {
		return nil, nil, err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(executable))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeFirst := chromedp.NewContext(allocator)
	closeBrowser = func() {
		closeFirst()
		stop() // waits for the process
	}
	if err := chromedp.Do(ctx); err != nil {
		closeBrowser()
		return nil, nil, fmt.Errorf("start %s: %w", executable, err)
	}
	return &Browser{ctx}, closeBrowser, nil
}

// Executable finds the browser to run: the one that the variable CHROMIUM names, a name on the PATH or an absolute path,
// else chromium-headless-shell.
func Executable() (string, error) {
	const usual = "chromium-headless-shell"
	name := cmp.Or(os.Getenv("CHROMIUM"), usual)
	path, err := exec.LookPath(name)
	switch {
	case err != nil && name == usual:
		return "", fmt.Errorf("find %s: %w; run `hack/install.sh browser` to install it, or name another Chromium with CHROMIUM", usual, err)
	case err != nil:
		return "", fmt.Errorf("find the browser that CHROMIUM names: %w", err)
	case !filepath.IsAbs(path): // tests run in the directory of their package
		return "", fmt.Errorf("CHROMIUM=%s is a relative path; use an absolute one, or a name on the PATH", name)
	}
	return path, nil
}

// Settings of a page. The zero value is a phone in portrait with JavaScript and a correct clock.
type Settings struct {
	Width, Height int64             // CSS pixels; 0: 390 x 844
	Language      string            // Accept-Language; empty: en
	NoJavaScript  bool              // the page's own; Page.Eval works
	ClockShift    time.Duration     // of the device's clock: Date is shifted, performance.now() is not
	Media         map[string]string // media features, such as prefers-color-scheme: dark
	Script        string            // runs before the scripts of every document
}

// Page is a tab with a profile of its own.
type Page struct {
	t   testing.TB
	ctx context.Context //nolint:containedctx // chromedp keeps its tab in a context

	noJavaScript bool

	mu       sync.Mutex
	logged   []string // all that the page and the browser have logged
	problems []string // errors of the page
	allowed  []string // parts of errors that the test expects
	requests requests
}

// NewPage opens an empty page, which is closed at the end of t.
func (b *Browser) NewPage(t testing.TB, settings Settings) *Page {
	t.Helper()
	p := &Page{t: t, noJavaScript: settings.NoJavaScript, requests: requests{open: map[network.RequestID]string{}, inFlight: map[string]int{}, most: map[string]int{}}}
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	p.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page shows:\n%s", p.Text("body"))
		}
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.problems) > 0 {
			t.Errorf("errors of the page:\n%s", strings.Join(p.problems, "\n"))
		}
	})
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as the context of its first action
		t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(cmp.Or(settings.Width, 390), cmp.Or(settings.Height, 844), chromedp.EmulateMobile, chromedp.EmulatePortrait))
	p.setLanguage(cmp.Or(settings.Language, "en"))
	p.SetMedia("", settings.Media)
	if settings.NoJavaScript {
		call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	}
	if settings.ClockShift != 0 {
		p.addScript(fmt.Sprintf(shiftedClock, settings.ClockShift.Milliseconds()))
	}
	if settings.Script != "" {
		p.addScript(settings.Script)
	}
	return p
}

// shiftedClock replaces Date by one that is wrong by some milliseconds.
const shiftedClock = `globalThis.Date = class extends Date {
	constructor(...given) { given.length ? super(...given) : super(Date.now()) }
	static now() { return super.now() + %d }
}`

func (p *Page) addScript(source string) {
	p.t.Helper()
	call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: source})
}

// AllowErrors makes errors expected whose text contains one of the parts.
func (p *Page) AllowErrors(parts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed = append(p.allowed, parts...)
}

// listen runs on chromedp's goroutine and must be fast.
func (p *Page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch event := event.(type) {
	case *log.EventEntryAdded:
		p.logged = append(p.logged, event.Entry.URL+": "+event.Entry.Text)
		if event.Entry.Level == log.EntryLevelError {
			p.problem(event.Entry.URL + ": " + event.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		p.problem((&chromedp.ExceptionError{ExceptionDetails: event.ExceptionDetails}).Error())
	case *runtime.EventConsoleAPICalled:
		words := []string{"console." + string(event.Type) + ":"}
		for _, arg := range event.Args {
			words = append(words, cmp.Or(arg.Description, string(arg.Value)))
		}
		p.logged = append(p.logged, strings.Join(words, " "))
		if event.Type == runtime.ConsoleAPICalledTypeError {
			p.problem(strings.Join(words, " "))
		}
	default:
		p.requests.count(event)
	}
}

// Logged is all that the page and the browser have logged.
func (p *Page) Logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.logged, "\n")
}

func (p *Page) problem(text string) {
	if !slices.ContainsFunc(p.allowed, func(part string) bool { return strings.Contains(text, part) }) {
		p.problems = append(p.problems, text)
	}
}

// do runs an action of chromedp and fails the test if it fails.
func (p *Page) do(action chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	run(p, action)
}

func run[T any](p *Page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Patience)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil && !errors.Is(err, chromedp.ErrJSUndefined) {
		p.t.Fatal(err)
	}
	return result
}

// call sends a command of the DevTools protocol.
func call[P, R any](p *Page, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Patience)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		p.t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}
