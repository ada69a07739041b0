package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// AssetPrefix is the path of the page's assets. A hash of the content follows, so that an asset can be cached for ever, and then the file.
const AssetPrefix = "/pay/static/"

// The files of the page.
const (
	styleFile  = "page.css"
	scriptFile = "page.js"
	retryFile  = "problem.js"
)

// Asset is a file that a page loads.
type Asset struct {
	// Path has a hash of the content.
	Path string
	// Tag is a hash of the content, for ETag; only of what has a path without one.
	Tag         string
	ContentType string
	Content     []byte
	// Gzipped is the content as gzip; nil: it was not compressed.
	Gzipped []byte
}

func newAsset(file, contentType string, content []byte) (Asset, error) {
	asset := Asset{Path: AssetPrefix + contentHash(content) + "/" + file, ContentType: contentType, Content: content}
	var err error
	asset.Gzipped, err = compress(content)
	return asset, err
}

// contentHash is different for different contents.
func contentHash(content []byte) string {
	sum := sha256.Sum256(content)
	const digits = 12
	return hex.EncodeToString(sum[:])[:digits]
}

func compress(content []byte) ([]byte, error) {
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	err = writer.Close()
	return compressed.Bytes(), err
}

// newScript joins the files of a page's script: no browser has to load a second one.
func newScript(file string, parts ...string) (Asset, error) {
	script, err := join(parts...)
	if err != nil {
		return Asset{}, err
	}
	return newAsset(file, "text/javascript; charset=utf-8", script)
}

// forReaders is what readers of the sources need and browsers do not: comments and indentation.
var forReaders = regexp.MustCompile(`(?m)^ *//.*\n|^ +| +// .*$`)

func join(names ...string) ([]byte, error) {
	var joined []byte
	for _, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		joined = append(joined, forReaders.ReplaceAll(content, nil)...)
	}
	return joined, nil
}

// Asset returns a file with an accent color, as its page asked for them. current reports whether the version is the hash of the content:
// while replicas are replaced, a page may come from one of another version, and must not lose its style.
func (p *Pages) Asset(version, file, accent string) (asset Asset, current, found bool) {
	switch {
	case file == styleFile:
		asset = p.style.base
		if accent != "" {
			asset, found = p.style.with("#" + accent)
			if !found {
				return Asset{}, false, false
			}
		}
	case file == scriptFile && accent == "":
		asset = p.script
	case file == retryFile && accent == "":
		asset = p.retry
	default:
		return Asset{}, false, false
	}
	return asset, asset.Path == AssetPrefix+version+"/"+file, true
}

// WidgetPath is the path of the widget's script. The version changes when a shop has to change its page for it.
const WidgetPath = "/widget/v1.js"

// newWidget joins the script of the custom element <payment-session> from its texts, the digits of currencies, the status client and
// the element itself.
func newWidget(translations []translation) (Asset, error) {
	texts := map[string][]string{}
	for _, in := range translations {
		// In the order that widget.js expects.
		texts[in.Lang] = []string{
			in.TimeLeftText, in.AlreadyPaid, in.TestMode, in.Waiting, in.Paid, in.Failed, in.Expired, in.Cancelled, in.NotFound, in.NotConnected,
		}
	}
	encoded, err := json.Marshal(texts)
	if err != nil {
		return Asset{}, fmt.Errorf("encode the texts of the widget: %w", err)
	}
	digits, err := json.Marshal(session.OtherMinorDigits())
	if err != nil {
		return Asset{}, fmt.Errorf("encode the digits of currencies: %w", err)
	}
	scripts, err := join("statusclient.js", "widget.js")
	if err != nil {
		return Asset{}, err
	}
	content := slices.Concat([]byte("const WIDGET_TEXTS = "), encoded, []byte(";\nconst MINOR_DIGITS = "), digits, []byte(";\n"), scripts)
	compressed, err := compress(content)
	return Asset{
		Path: WidgetPath, Tag: contentHash(content), ContentType: "text/javascript; charset=utf-8", Content: content, Gzipped: compressed,
	}, err
}

// Widget returns the script of the widget.
func (p *Pages) Widget() Asset { return p.widget }
