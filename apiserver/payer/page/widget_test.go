package page

import (
	"strings"
	"testing"
)

// The widget is small and has each language.
func TestWidget_SizeAndLanguages(t *testing.T) {
	pages := newPages(t)
	widget := pages.Widget()
	if size := len(widget.Gzipped); size > 6<<10 {
		t.Errorf("the widget takes %d bytes compressed, more than 6 KB", size)
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
