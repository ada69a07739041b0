package web

import (
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/text/language"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// english are the words of the pages.
func english(t testing.TB) Words {
	t.Helper()
	w, err := LoadWords(language.English)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// families are keys whose last part the code chooses.
var families = regexp.MustCompile(`^(problem|force|weekday|month|time|time\.on|failure|reason|event|rotate\.overlap|attention\.(blocked|reported|suspended|closed|deleted|active)|key\.may|payments\.(day|count|chart)|kind)\.`)

// Every text that a page or the code names is in the catalogue, and none is there that nobody names.
func TestWords_KnownAndUsed(t *testing.T) {
	w, used := english(t), map[string]bool{}
	named := regexp.MustCompile(`\b[tn] "([a-z]+\.[a-zA-Z.]+)"|\.(?:Text|HTML|Count)\("([a-z]+\.[a-zA-Z.]+)"|"((?:webhook|trouble|status|refused|refund|attention)\.[a-z.]+)"`)
	var sources []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".html") {
			return err
		}
		text, err := os.ReadFile(path)
		sources = append(sources, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range named.FindAllStringSubmatch(strings.Join(sources, "\n"), -1) {
		used[match[1]+match[2]+match[3]] = true
	}
	for _, match := range regexp.MustCompile(`words: "([a-z]+)"`).FindAllStringSubmatch(strings.Join(sources, "\n"), -1) { // of errorPages
		used["error."+match[1]], used["error."+match[1]+".title"] = true, true
	}
	for key := range used {
		_, known := w.texts[key]
		_, counted := w.texts[key+".other"]
		if !known && !counted && !families.MatchString(key+".") {
			t.Errorf("no words for %q", key)
		}
	}
	for key := range w.texts {
		stem := regexp.MustCompile(`\.(one|other)$`).ReplaceAllString(key, "")
		if !used[key] && !used[stem] && !families.MatchString(key) {
			t.Errorf("nothing uses the words %q", key)
		}
	}
}

func TestWords_EscapedAndCounted(t *testing.T) {
	w := Words{language: language.English, texts: map[string]string{"a": "<b>{0}</b> and {1}", "n.one": "1 thing", "n.other": "{0} things"}}
	if got := w.HTML("a", "<i>{1}", template.HTML("<i>")); got != "<b>&lt;i&gt;{1}</b> and <i>" {
		t.Error(got)
	}
	for n, want := range map[int64]template.HTML{0: "0 things", 1: "1 thing", 2: "2 things", 11: "11 things", 12_000: "12,000 things"} {
		if got := w.Count("n", n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

// A person reads events in words, not by their types.
func TestWords_Events(t *testing.T) {
	w := english(t)
	for _, kind := range append(v1alpha1.WebhookEvents(), v1alpha1.EventWebhookTest) {
		if !w.Known("kind." + string(kind)) {
			t.Errorf("no words for %s", kind)
		}
	}
	if got := w.kind("session.teleported"); got != "session.teleported" { // of a newer version
		t.Errorf("an unknown one is %q", got)
	}
}
