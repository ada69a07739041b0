// Package locale chooses the language of a page among those that have a file of texts.
package locale

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/text/language"
)

// defaultLanguage is the language of people who want none of ours.
const defaultLanguage = "en"

// Languages returns the languages of the files in a directory, each named after its BCP 47 tag as de.json is, the default first.
func Languages(files fs.FS, directory string) ([]language.Tag, error) {
	names, err := fs.Glob(files, directory+"/*.json")
	if err != nil {
		return nil, fmt.Errorf("list the languages of %s: %w", directory, err)
	}
	var tags []language.Tag
	for _, name := range names {
		tag, err := language.Parse(strings.TrimSuffix(path.Base(name), ".json"))
		if err != nil {
			return nil, fmt.Errorf("%s is not named after a language: %w", name, err)
		}
		tags = append(tags, tag)
	}
	at := slices.Index(tags, language.MustParse(defaultLanguage))
	if at < 0 {
		return nil, fmt.Errorf("%s has no texts in the default language %s", directory, defaultLanguage)
	}
	return slices.Insert(slices.Delete(tags, at, at+1), 0, language.MustParse(defaultLanguage)), nil
}

// Matcher chooses one of several languages. It is safe for concurrent use.
type Matcher struct{ matcher language.Matcher }

// NewMatcher returns the Matcher of languages, the default first.
func NewMatcher(languages []language.Tag) Matcher {
	return Matcher{language.NewMatcher(languages)}
}

// maxAcceptLanguage is more than any browser sends. To match thousands of languages takes more time than all else of a page, and the page of
// an error has no limit of requests.
const maxAcceptLanguage = 512

// Match returns the index of the best language for a header Accept-Language, however malformed it is.
func (m Matcher) Match(acceptLanguage string) int {
	if len(acceptLanguage) > maxAcceptLanguage {
		return 0
	}
	preferred, _, err := language.ParseAcceptLanguage(acceptLanguage)
	if err != nil {
		return 0
	}
	_, index, _ := m.matcher.Match(preferred...)
	return index
}

// Direction returns the attribute dir of text in a language: ltr or rtl.
func Direction(tag language.Tag) string {
	if script, _ := tag.Script(); script == language.MustParseScript("Arab") {
		return "rtl"
	}
	return "ltr"
}
