package web

import (
	"bytes"
	"context"
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
	"github.com/merchant-operator/merchant-operator/internal/locale"
)

//go:embed templates/*.html assets/*
var pageFiles embed.FS

// Pages are the templates, each with the layout and in each language, and the files they refer to.
type Pages struct {
	editions []edition // the default first
	matcher  locale.Matcher
	// Assets serves the files, below /assets/.
	Assets http.Handler
	// Now is the time of the pages.
	Now func() time.Time
}

// edition is all pages in one language.
type edition struct {
	words     Words
	templates map[string]*template.Template
}

// editionKey is the key of an edition in a context.
type editionKey struct{}

// InLanguage has next write its pages in the language that the browser asks for, among those that there are.
func (p *Pages) InLanguage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chosen := &p.editions[p.matcher.Match(r.Header.Get("Accept-Language"))]
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), editionKey{}, chosen)))
	})
}

// edition returns the pages in the language of a request with the context; of another context, in the default language.
func (p *Pages) edition(ctx context.Context) *edition {
	if chosen, ok := ctx.Value(editionKey{}).(*edition); ok {
		return chosen
	}
	return &p.editions[0]
}

// Words are the texts in the language of the request with the context.
func (p *Pages) Words(ctx context.Context) Words { return p.edition(ctx).words }

// Clock returns the clock on the wall of a Merchant's shop, for the request with the context.
func (p *Pages) Clock(ctx context.Context, merchant *v1alpha1.Merchant) Clock {
	return Clock{Words: p.Words(ctx), Now: p.Now(), Location: merchant.Spec.TimeZone.Location()}
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

// NewPages returns the pages in all languages that have words.
func NewPages(now func() time.Time) (*Pages, error) {
	assets, names, err := newAssets()
	if err != nil {
		return nil, err
	}
	tags, err := locale.Languages(wordFiles, "words")
	if err != nil {
		return nil, err
	}
	p := &Pages{Assets: assets, Now: now, matcher: locale.NewMatcher(tags)}
	for _, tag := range tags {
		words, err := LoadWords(tag)
		if err != nil {
			return nil, err
		}
		templates, err := parseTemplates(words, names)
		if err != nil {
			return nil, err
		}
		p.editions = append(p.editions, edition{words, templates})
	}
	return p, nil
}

// parseTemplates returns the templates of the pages by name, in the language of the words. assets are the addresses of files by name.
func parseTemplates(words Words, assets map[string]string) (map[string]*template.Template, error) {
	functions := template.FuncMap{
		"asset":     func(name string) string { return assets[name] },
		"language":  words.language.String,
		"direction": func() string { return locale.Direction(words.language) },
		"span":      words.span,
		"t":         words.HTML,
		"tool":      ManagerText,
		"kind":      words.kind,
		"n": func(key string, n any, values ...any) template.HTML {
			return words.Count(key, reflect.ValueOf(n).Int(), values...)
		},
		"number": func(n any) string { return words.Number(reflect.ValueOf(n).Int()) },
	}
	files, err := fs.Glob(pageFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	templates := map[string]*template.Template{}
	for _, file := range files {
		if file == partsFile {
			continue
		}
		name := strings.TrimSuffix(path.Base(file), ".html")
		parsed, err := template.New("layout.html").Funcs(functions).ParseFS(pageFiles, "templates/layout.html", partsFile, file)
		if err != nil {
			return nil, fmt.Errorf("parse the page %s: %w", name, err)
		}
		templates[name] = parsed
	}
	return templates, nil
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

// Render writes a page in the language of the request. Nothing is written if the template fails, so that the error can become a page.
func (p *Pages) Render(w http.ResponseWriter, r *http.Request, status int, page string, v View) error {
	var body bytes.Buffer
	if err := p.edition(r.Context()).templates[page].Execute(&body, v); err != nil {
		return fmt.Errorf("render the page %s: %w", page, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Add("Vary", "Accept-Language")
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

// ManagerText names the tool that manages an object, and the source that the tool reads, if it is known.
func ManagerText(m gitops.Manager) string {
	if m.Source == "" {
		return m.Tool
	}
	return m.Tool + ", " + m.Source
}
