package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/merchant-operator/merchant-operator/test/await"
)

// Open loads a page and returns its HTTP status.
func (p *Page) Open(url string) int {
	p.t.Helper()
	return int(run(p, chromedp.NavigateResponse(url)).Status)
}

// Eval runs an expression in the page, awaits it if it is a promise and decodes its result.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	return run(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Do runs statements in the page.
func (p *Page) Do(statements string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void]("{" + statements + "}"))
}

// Until waits for an expression of the page to be true. What completes the sentence "waited in vain until …".
func (p *Page) Until(what, expression string) {
	p.t.Helper()
	await.Seeing(p.t, Patience, what, func() (string, bool) {
		if run(p, chromedp.Evaluate[bool]("Boolean("+expression+")")) {
			return "", true
		}
		return p.Text("body"), false
	})
}

// Text is what a person sees of the first element of a selector; empty: there is none.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	return Eval[string](p, "document.querySelector("+strconv.Quote(selector)+")?.innerText ?? ''")
}

// Press presses and releases keys, such as kb.Tab.
func (p *Page) Press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// Click clicks the first element of a selector, waits for the page that this leads to and returns its HTTP status.
func (p *Page) Click(selector string) int {
	p.t.Helper()
	center := Eval[[]float64](p, "(e => { e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })"+
		"(document.querySelector("+strconv.Quote(selector)+"))")
	ctx, cancel := context.WithTimeout(p.ctx, Patience)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.MouseClickXY(center[0], center[1]))
	if err != nil {
		p.t.Fatalf("click %s: %v\n%s", selector, err, p.Text("body"))
	}
	return int(response.Status)
}

// Fill replaces the text of a field as a keyboard does.
func (p *Page) Fill(selector, text string) {
	p.t.Helper()
	p.Do("const field = document.querySelector(" + strconv.Quote(selector) + "); field.focus(); field.select()")
	if text == "" {
		p.Press(kb.Delete)
		return
	}
	call(p, input.InsertText, input.InsertTextParams{Text: text})
}

// Back goes back in the history as the button of the browser does. The browser's own page about an error is a page too.
func (p *Page) Back() { p.t.Helper(); p.moved(chromedp.NavigateBack()) }

// Forward is the opposite of Back.
func (p *Page) Forward() { p.t.Helper(); p.moved(chromedp.NavigateForward()) }

// Reload loads the page again, and sends its form again if it came from one.
func (p *Page) Reload() { p.t.Helper(); p.moved(chromedp.Reload()) }

func (p *Page) moved(action chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, action); err != nil && !errors.As(err, new(*chromedp.LoadError)) {
		p.t.Fatal(err)
	}
}

// History has the addresses that Back and Forward lead to.
func (p *Page) History() (urls []string) {
	p.t.Helper()
	for _, entry := range run(p, chromedp.NavigationEntries()).Entries {
		urls = append(urls, entry.URL)
	}
	return urls
}

// SetTimezone emulates where the device is, such as Asia/Tokyo.
func (p *Page) SetTimezone(zone string) {
	p.t.Helper()
	call(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})
}

// SetMedia emulates a media type, such as print, and features, such as prefers-color-scheme: dark. Empty: the screen's own.
func (p *Page) SetMedia(media string, features map[string]string) {
	p.t.Helper()
	params := emulation.SetEmulatedMediaParams{Media: media, Features: []*emulation.MediaFeature{}}
	for name, value := range features {
		params.Features = append(params.Features, &emulation.MediaFeature{Name: name, Value: value})
	}
	call(p, emulation.SetEmulatedMedia, params)
}

// SetViewport changes the size of the window in CSS pixels, of scale device pixels each.
func (p *Page) SetViewport(width, height int64, scale float64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height, chromedp.EmulateMobile, chromedp.EmulatePortrait, chromedp.EmulateScale(scale)))
}

func (p *Page) setLanguage(language string) {
	p.t.Helper()
	agent := Eval[string](p, "navigator.userAgent")
	call(p, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: agent, AcceptLanguage: language})
}

// SetOffline takes the network away, or gives it back. Requests that are open end.
func (p *Page) SetOffline(offline bool) {
	p.t.Helper()
	conditions := []*network.Conditions{}
	if offline {
		conditions = append(conditions, &network.Conditions{Offline: true, DownloadThroughput: -1, UploadThroughput: -1})
	}
	call(p, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: conditions})
	call(p, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1})
}

// Freeze stops scripts and timers of the page, as a phone does with a page in the background, until Resume.
func (p *Page) Freeze() {
	p.t.Helper()
	call(p, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: page.SetWebLifecycleStateStateFrozen})
}

// Resume ends Freeze.
func (p *Page) Resume() {
	p.t.Helper()
	call(p, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: page.SetWebLifecycleStateStateActive})
}

// Screenshot of the whole page, as PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	return run(p, chromedp.FullScreenshot(100))
}

// WindowScreenshot is of what the window shows, as PNG.
func (p *Page) WindowScreenshot() []byte {
	p.t.Helper()
	return run(p, chromedp.CaptureScreenshot())
}

// Node is a node of the accessibility tree.
type Node struct{ Role, Name string }

// AccessibilityTree has the nodes that assistive technology sees, in their order.
func (p *Page) AccessibilityTree() []Node {
	p.t.Helper()
	var nodes []Node
	for _, node := range call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if !node.Ignored {
			nodes = append(nodes, Node{Role: text(node.Role), Name: text(node.Name)})
		}
	}
	return nodes
}

func text(value *accessibility.Value) (decoded string) {
	if value != nil {
		_ = json.Unmarshal(value.Value, &decoded) // else it is no text
	}
	return decoded
}

// requests counts by URL, without the query.
type requests struct {
	open     map[network.RequestID]string
	total    []string // in the order of sending
	inFlight map[string]int
	most     map[string]int
}

func (r *requests) count(event any) {
	switch event := event.(type) {
	case *network.EventRequestWillBeSent:
		url, _, _ := strings.Cut(event.Request.URL, "?")
		r.open[event.RequestID] = url
		r.total = append(r.total, url)
		r.inFlight[url]++
		r.most[url] = max(r.most[url], r.inFlight[url])
	case *network.EventLoadingFinished:
		r.ended(event.RequestID)
	case *network.EventLoadingFailed:
		r.ended(event.RequestID)
	}
}

func (r *requests) ended(id network.RequestID) {
	if url, ok := r.open[id]; ok {
		r.inFlight[url]--
		delete(r.open, id)
	}
}

// Requests says how many requests of a URL the page has sent, how many are in flight and how many were at once, at most.
func (p *Page) Requests(url string) (total, inFlight, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sent := range p.requests.total {
		if sent == url {
			total++
		}
	}
	return total, p.requests.inFlight[url], p.requests.most[url]
}
