package page

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// A payer in a cellar has a slow connection.
func TestPage_Size(t *testing.T) {
	pages := newPages(t)
	const limit = 15 << 10
	for _, in := range pages.translations {
		payment := newPayment(session.Pending)
		payment.QRText = "https://payments.a-long-name.example.com/pay/" + payment.ID.String()
		rendered, err := pages.Payment(in.Lang, payment)
		if err != nil {
			t.Fatal(err)
		}
		accented, _ := pages.style.with("#0b6e4f")
		var total int
		for _, part := range [][]byte{rendered, accented.Content, pages.script.Content} {
			total += gzipped(t, part)
		}
		if total > limit {
			t.Errorf("%s: %d bytes, want at most %d", in.Lang, total, limit)
		}
		var loaded []string
		page := parse(t, rendered)
		for _, name := range []string{"link", "script", "img", "iframe", "source", "video", "object", "embed"} {
			for _, element := range all(page, name) {
				loaded = append(loaded, attribute(element, "href")+attribute(element, "src"))
			}
		}
		if want := []string{pages.style.path(payment.AccentColor), pages.script.Path}; !slices.Equal(loaded, want) {
			t.Errorf("the page loads %v, want %v", loaded, want)
		}
	}
}

func gzipped(t *testing.T, content []byte) int {
	t.Helper()
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	if _, err := writer.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return compressed.Len()
}

// The policy of the page allows no style and no script in it.
func TestPage_NothingInline(t *testing.T) {
	rendered, err := newPages(t).Payment("en", newPayment(session.Pending))
	if err != nil {
		t.Fatal(err)
	}
	page := parse(t, rendered)
	if len(all(page, "style")) > 0 {
		t.Error("there is a style")
	}
	for element := range page.Descendants() {
		for _, a := range element.Attr {
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("<%s> has %s", element.Data, a.Key)
			}
		}
	}
	for _, script := range all(page, "script") {
		if text(script) != "" {
			t.Errorf("a script is inline: %s", text(script))
		}
	}
}

func TestAssets(t *testing.T) {
	pages := newPages(t)
	css, js := strings.TrimPrefix(pages.style.base.Path, AssetPrefix), strings.TrimPrefix(pages.script.Path, AssetPrefix)
	const other = "000000000000/" // version
	for _, test := range []struct {
		name, accent   string
		current, found bool
	}{
		{css, "", true, true},
		{css, "0b6e4f", true, true},
		{js, "", true, true},
		{strings.TrimPrefix(pages.retry.Path, AssetPrefix), "", true, true},
		{other + "page.css", "", false, true},
		{other + "page.js", "", false, true},
		{css, "777777", false, false}, // contrasts nowhere
		{css, "#0b6e4f", false, false},
		{css, "0b6e4f;}*{x:y", false, false},
		{js, "0b6e4f", false, false},
		{other + "other.css", "", false, false},
		{other + "page.html", "", false, false},
		{"", "", false, false},
		{"../payer.go", "", false, false},
		{"page.css", "", false, false},
	} {
		version, file, _ := strings.Cut(test.name, "/")
		asset, current, found := pages.Asset(version, file, test.accent)
		if current != test.current || found != test.found || (found && len(asset.Content) == 0) {
			t.Errorf("%s?accent=%s: current %v, found %v", test.name, test.accent, current, found)
		}
	}
}

// The widget is small and has each language.
func TestWidget_SizeAndLanguages(t *testing.T) {
	pages := newPages(t)
	widget := pages.Widget()
	if size := len(widget.Gzipped); size > 7<<10 {
		t.Errorf("the widget takes %d bytes compressed, more than 7 KB", size)
	}
	if widget.Tag == "" {
		t.Error("it has no tag")
	}
	for _, in := range pages.translations {
		for _, text := range []string{in.Waiting, in.AlreadyPaid, in.NotConnected} {
			if !strings.Contains(string(widget.Content), text) {
				t.Errorf("%s: %q is missing", in.Lang, text)
			}
		}
	}
	for _, sink := range []string{"innerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "cookie", "localStorage"} {
		if strings.Contains(string(widget.Content), sink) {
			t.Errorf("the widget uses %s", sink)
		}
	}
}
