package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

//go:embed templates/*.html assets/*
var pageFiles embed.FS

// Pages are the templates, each with the layout, and the files they refer to.
type Pages struct {
	templates map[string]*template.Template
	// Assets serves the files, below /assets/.
	Assets http.Handler
	// Words are the texts of the pages.
	Words Words
	// Now is the time of the pages.
	Now func() time.Time
}

// Clock returns the clock on the wall of a Merchant's shop.
func (p *Pages) Clock(merchant *v1alpha1.Merchant) Clock {
	return Clock{Words: p.Words, Now: p.Now(), Location: merchant.Spec.TimeZone.Location()}
}

// View is what the layout shows, and the data of the page in it.
type View struct {
	Title string
	// Viewer is nil if nobody is signed in.
	Viewer *login.Person
	Data   any
}

// partsFile has what several pages show.
const partsFile = "templates/parts.html"

// Tabs are the links between the pages of a Merchant: at is "payments" or "integrations", the page that shows them.
type Tabs struct {
	Base, At string
	// Payments: the viewer may see them.
	Payments bool
}

// NewPages returns the pages in the language of the words.
func NewPages(words Words, now func() time.Time) (*Pages, error) {
	assets, names, err := newAssets()
	if err != nil {
		return nil, err
	}
	p := &Pages{templates: map[string]*template.Template{}, Assets: assets, Words: words, Now: now}
	functions := template.FuncMap{
		"asset": func(name string) string { return names[name] },
		"span":  words.span,
		"t":     words.HTML,
		"tool":  managerText,
		"kind":  words.kind,
		"n": func(key string, n any, values ...any) template.HTML {
			return words.Count(key, reflect.ValueOf(n).Int(), values...)
		},
		"number": func(n int32) string { return words.Number(int64(n)) },
	}
	files, err := fs.Glob(pageFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if file == partsFile {
			continue
		}
		name := strings.TrimSuffix(path.Base(file), ".html")
		parsed, err := template.New("layout.html").Funcs(functions).ParseFS(pageFiles, "templates/layout.html", partsFile, file)
		if err != nil {
			return nil, fmt.Errorf("parse the page %s: %w", name, err)
		}
		p.templates[name] = parsed
	}
	return p, nil
}

// newAssets serves the files under names with their digest, so that a browser asks for each version once.
func newAssets() (http.Handler, map[string]string, error) {
	const digestLength = 8 // bytes
	entries, err := fs.ReadDir(pageFiles, "assets")
	if err != nil {
		return nil, nil, err
	}
	names, contents := map[string]string{}, map[string][]byte{}
	for _, entry := range entries {
		content, err := pageFiles.ReadFile("assets/" + entry.Name())
		if err != nil {
			return nil, nil, err
		}
		digest := sha256.Sum256(content)
		base, extension, _ := strings.Cut(entry.Name(), ".")
		url := "/assets/" + base + "-" + hex.EncodeToString(digest[:digestLength]) + "." + extension
		names[entry.Name()], contents[url] = url, content
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := contents[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		http.ServeContent(w, r, r.URL.Path, time.Time{}, bytes.NewReader(content))
	}), names, nil
}

// Render writes a page. Nothing is written if the template fails, so that the error can become a page.
func (p *Pages) Render(w http.ResponseWriter, status int, page string, v View) error {
	var body bytes.Buffer
	if err := p.templates[page].Execute(&body, v); err != nil {
		return fmt.Errorf("render the page %s: %w", page, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client may have gone
	return nil
}

// span is a number of seconds in words.
func (w Words) span(seconds int32) template.HTML {
	const minute, hour = 60, 3600
	switch {
	case seconds%hour == 0:
		return w.Count("span.hours", int64(seconds/hour))
	case seconds%minute == 0:
		return w.Count("span.minutes", int64(seconds/minute))
	}
	return w.Count("span.seconds", int64(seconds))
}

// kind is a kind of event in words. A newer version's is its name.
func (w Words) kind(kind v1alpha1.WebhookEvent) string {
	if key := "kind." + string(kind); w.Known(key) {
		return w.Text(key)
	}
	return string(kind)
}

// managerText is the tool that manages an object, with what it reads.
func managerText(m gitops.Manager) string {
	if m.Source == "" {
		return m.Tool
	}
	return m.Tool + ", " + m.Source
}
