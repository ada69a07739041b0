package web

import (
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/language"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/locale"
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
var families = regexp.MustCompile(`^(invalid|state|date|problem|force|weekday|month|time|time\.on|failure|reason|event|rotate\.overlap|attention\.(blocked|reported|suspended|closed|deleted|active)|key\.may|payments\.(day|count|chart)|kind)\.`)

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

// A language is one file: it has all texts of English, with the same values and markup, and for a number the plural forms of the language.
func TestWords_EachLanguage(t *testing.T) {
	languages, err := locale.Languages(wordFiles, "words")
	if err != nil || len(languages) < 2 {
		t.Fatalf("the languages are %v: %v", languages, err)
	}
	for _, tag := range languages {
		w, err := LoadWords(tag)
		if err != nil {
			t.Fatal(err)
		}
		wanted := englishTexts(t, w)
		for key, english := range wanted {
			text, known := w.texts[key]
			switch {
			case !known:
				t.Errorf("%s: no words for %q, in English %q", tag, key, english.text)
			case text == "" || strings.TrimSpace(text) != text || strings.ContainsFunc(text, unicode.IsControl):
				t.Errorf("%s: %s is %q", tag, key, text)
			case !slices.Equal(english.parts, parts(text, english.counted)):
				t.Errorf("%s: %s is %q, in English %q", tag, key, text, english.text)
			case tag != language.English && text == english.text && strings.Contains(strings.TrimSpace(part.ReplaceAllString(text, "")), " "):
				t.Errorf("%s: %s is English: %q", tag, key, text)
			}
		}
		for key := range w.texts {
			if _, known := wanted[key]; !known {
				t.Errorf("%s: %q is no text, or no plural form of the language", tag, key)
			}
		}
	}
}

// englishText is what English says where another language needs a text.
type englishText struct {
	text    string
	parts   []string
	counted bool // it is one of the plural forms
}

// englishTexts are the keys that a language needs, with the English texts.
func englishTexts(t *testing.T, w Words) map[string]englishText {
	t.Helper()
	forms := map[string]bool{}
	for n := range int64(200) {
		forms[w.form(n)] = true
	}
	all, wanted := english(t).texts, map[string]englishText{}
	for key, text := range all {
		stem := strings.TrimSuffix(strings.TrimSuffix(key, ".one"), ".other")
		if one, other := all[stem+".one"], all[stem+".other"]; one != "" && other != "" {
			for form := range forms {
				wanted[stem+"."+form] = englishText{other, parts(other, true), true}
			}
			continue
		}
		wanted[key] = englishText{text, parts(text, false), false}
	}
	return wanted
}

// part is a value or the markup of a text.
var part = regexp.MustCompile(`\{\d\}|<[^>]*>`)

// parts are the values and the markup of a text, in an order of their own. A plural form may say its number, {0}, in a word.
func parts(text string, counted bool) []string {
	found := part.FindAllString(text, -1)
	if counted {
		found = slices.DeleteFunc(found, func(one string) bool { return one == "{0}" })
	}
	return slices.Sorted(slices.Values(found))
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
