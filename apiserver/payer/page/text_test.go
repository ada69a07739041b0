package page

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// Each text is in each language.
func TestTexts_EachLanguage(t *testing.T) {
	pages := newPages(t)
	want := []string{"en", "ar", "de", "es", "fr", "it", "ja", "nl", "pl", "pt", "zh"}
	if len(pages.translations) != len(want) {
		t.Fatalf("%d languages, want %d", len(pages.translations), len(want))
	}
	english := reflect.ValueOf(pages.translations[0].texts)
	for i, in := range pages.translations {
		if in.Lang != want[i] {
			t.Errorf("language %d is %s, want %s", i, in.Lang, want[i])
		}
		for field := range reflect.TypeFor[texts]().NumField() {
			name, text := english.Type().Field(field).Name, reflect.ValueOf(in.texts).Field(field).String()
			switch {
			case strings.TrimSpace(text) == "" || strings.TrimSpace(text) != text:
				t.Errorf("%s: %s is %q", in.Lang, name, text)
			case i > 0 && text == english.Field(field).String():
				t.Errorf("%s: %s is English: %q", in.Lang, name, text)
			case strings.ContainsFunc(text, unicode.IsControl):
				t.Errorf("%s: %s has a control character", in.Lang, name)
			}
		}
	}
}

// The language of the page.
func TestTexts_Language(t *testing.T) {
	pages := newPages(t)
	for header, want := range map[string]string{
		"":                             "en ltr",
		"de":                           "de ltr",
		"de-AT,de;q=0.9,en;q=0.8":      "de ltr",
		"fr-CA":                        "fr ltr",
		"sv,nl;q=0.5":                  "nl ltr",
		"sv,da;q=0.9":                  "en ltr",
		"en;q=0.1,pl;q=0.9":            "pl ltr",
		"pt-PT":                        "pt ltr",
		"zh-TW":                        "zh ltr",
		"zh-Hans-CN":                   "zh ltr",
		"ja-JP":                        "ja ltr",
		"ar-EG":                        "ar rtl",
		"ar":                           "ar rtl",
		"*":                            "en ltr",
		"de;q=0":                       "en ltr",
		"no header at all":             "en ltr",
		"de;q=x":                       "en ltr",
		strings.Repeat("de-", 9000):    "en ltr",
		strings.Repeat("de,", 100):     "de ltr",
		strings.Repeat("de,", 9000):    "en ltr",
		"\"><script>alert(1)</script>": "en ltr",
	} {
		problem, err := pages.Problem(header, 404)
		page := problem.Content
		if err != nil {
			t.Fatal(err)
		}
		root := one(t, parse(t, page), "html")
		if got := attribute(root, "lang") + " " + attribute(root, "dir"); got != want {
			t.Errorf("%.40q: %s, want %s", header, got, want)
		}
	}
}
