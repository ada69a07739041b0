package page

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// stylesheet is page.css, to which the accent color of a merchant may be added.
type stylesheet struct{ base Asset }

func newStylesheet() (stylesheet, error) {
	content, err := files.ReadFile("page.css")
	if err != nil {
		return stylesheet{}, err
	}
	base, err := newAsset(styleFile, "text/css; charset=utf-8", content)
	return stylesheet{base}, err
}

// themes are the backgrounds of page.css. Text on a button has the color of the background.
var themes = []struct{ scheme, background string }{{"light", "#ffffff"}, {"dark", "#14171b"}}

// path is where the stylesheet is, with the accent color if it can be used on any background.
func (s stylesheet) path(accent string) string {
	if accentRules(accent) == "" {
		return s.base.Path
	}
	return s.base.Path + "?accent=" + strings.ToLower(accent[1:])
}

// with is the stylesheet with an accent color, which comes from a URL; false: there is none.
func (s stylesheet) with(accent string) (Asset, bool) {
	rules := accentRules(accent)
	if rules == "" {
		return Asset{}, false
	}
	colored := s.base
	colored.Content, colored.Gzipped = append(append([]byte{}, s.base.Content...), rules...), nil
	return colored, true
}

// accentRules are the rules that set the accent color where it contrasts enough with the background, both as a text on it and as the
// background of a text in its color. Empty: nowhere, or it is no color.
func accentRules(accent string) string {
	var rules strings.Builder
	for _, theme := range themes {
		if contrast(accent, theme.background) >= leastContrast {
			rules.WriteString("@media (prefers-color-scheme:" + theme.scheme + "){:root{--accent:" + accent + "}}\n")
		}
	}
	return rules.String()
}

// leastContrast is what WCAG 2.2 asks of text (1.4.3, level AA).
const leastContrast = 4.5

var colorForm = regexp.MustCompile(`^#[0-9A-Fa-f]{6}$`)

// contrast is the contrast ratio of WCAG 2.2, from 1 to 21; 0: one of them is no color "#rrggbb".
func contrast(a, b string) float64 {
	if !colorForm.MatchString(a) || !colorForm.MatchString(b) {
		return 0
	}
	const flare = 0.05
	lighter, darker := luminance(a), luminance(b)
	if lighter < darker {
		lighter, darker = darker, lighter
	}
	return (lighter + flare) / (darker + flare)
}

// luminance is the relative luminance of WCAG 2.2 of a color "#rrggbb".
func luminance(color string) float64 {
	linear := func(digits string) float64 {
		const max8Bit = 255
		value, _ := strconv.ParseUint(digits, 16, 8) // its form was checked
		part := float64(value) / max8Bit
		if part <= 0.04045 {
			return part / 12.92
		}
		return math.Pow((part+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(color[1:3]) + 0.7152*linear(color[3:5]) + 0.0722*linear(color[5:7])
}
