package locale

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/text/language"
)

func TestLanguages(t *testing.T) {
	file := &fstest.MapFile{}
	for name, test := range map[string]struct {
		files fstest.MapFS
		want  string // empty: an error
	}{
		"the default first": {fstest.MapFS{"texts/de.json": file, "texts/en.json": file, "texts/pt-BR.json": file, "other/fr.json": file}, "en de pt-BR"},
		"no default":        {fstest.MapFS{"texts/de.json": file}, ""},
		"no language":       {fstest.MapFS{"texts/en.json": file, "texts/words of ours.json": file}, ""},
	} {
		tags, err := Languages(test.files, "texts")
		var names []string
		for _, tag := range tags {
			names = append(names, tag.String())
		}
		if got := strings.Join(names, " "); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
}

func TestMatcher(t *testing.T) {
	tags := []language.Tag{language.English, language.German, language.Arabic}
	matcher := NewMatcher(tags)
	for header, want := range map[string]string{
		"": "en", "de": "de", "de-AT,de;q=0.9,en;q=0.8": "de", "en-GB,de;q=0.9": "en", "fr,de;q=0.5": "de", "fr": "en", "*": "en", "de;q=0": "en", "ar-EG": "ar",
		"no header at all": "en", "de;q=x": "en", strings.Repeat("de,", 100): "de", strings.Repeat("de,", 9000): "en",
	} {
		if got := tags[matcher.Match(header)].String(); got != want {
			t.Errorf("%.40q: %s, want %s", header, got, want)
		}
	}
}

func TestDirection(t *testing.T) {
	rightToLeft := []string{"ar", "fa", "ur"}
	for _, tag := range []string{"en", "de", "ja", "ar", "fa", "ur"} {
		want := "ltr"
		if slices.Contains(rightToLeft, tag) {
			want = "rtl"
		}
		if got := Direction(language.MustParse(tag)); got != want {
			t.Errorf("%s: %s, want %s", tag, got, want)
		}
	}
}
