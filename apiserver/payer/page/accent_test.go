package page

import (
	"math"
	"strings"
	"testing"
)

// The ratios are those of WebAIM's contrast checker.
func TestContrast(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want float64
	}{
		{"#000000", "#ffffff", 21}, {"#ffffff", "#000000", 21}, {"#777777", "#ffffff", 4.48}, {"#767676", "#FFFFFF", 4.54},
		{"#0000ff", "#ffffff", 8.59}, {"#ff0000", "#ffffff", 4}, {"#00ff00", "#000000", 15.3}, {"#123456", "#123456", 1},
		{"red", "#ffffff", 0}, {"#fff", "#ffffff", 0}, {"#ffffff;", "#000000", 0}, {"", "#000000", 0},
	} {
		if got := contrast(test.a, test.b); math.Abs(got-test.want) > 0.01 {
			t.Errorf("%s on %s: %.3f, want %.2f", test.a, test.b, got, test.want)
		}
	}
}

// An accent color is used only where it contrasts.
func TestAccent_OnlyWithContrast(t *testing.T) {
	style, err := newStylesheet()
	if err != nil {
		t.Fatal(err)
	}
	for accent, want := range map[string]string{
		"#0b6e4f": "light", "#000000": "light", "#0B57D0": "light",
		"#8ab4f8": "dark", "#ffffff": "dark", "#FFEE00": "dark",
		"#777777": "", "red": "", "#fff": "", "": "", "#ffffff}*{display:none": "",
	} {
		path := style.path(accent)
		if want == "" {
			if path != style.base.Path {
				t.Errorf("%q is used nowhere, but the path is %s", accent, path)
			}
			if _, found := style.with(accent); found {
				t.Errorf("%q is served", accent)
			}
			continue
		}
		asset, found := style.with(strings.ToLower(accent))
		added := strings.TrimPrefix(string(asset.Content), string(style.base.Content))
		if rule := "@media (prefers-color-scheme:" + want + "){:root{--accent:" + strings.ToLower(accent) + "}}\n"; !found || added != rule {
			t.Errorf("%s adds %q, want %q", accent, added, rule)
		}
		if path != style.base.Path+"?accent="+strings.ToLower(accent[1:]) {
			t.Errorf("%s: the path is %s", accent, path)
		}
	}
}

// What contrasts with another background than the page has is of no use.
func TestAccent_BackgroundsOfThePage(t *testing.T) {
	content, err := files.ReadFile("page.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, found := strings.Cut(string(content), "@media (prefers-color-scheme: dark)")
	for i, part := range []string{light, dark} {
		if !found || !strings.Contains(part, "--background: "+themes[i].background+";") {
			t.Errorf("page.css has another %s background than %s", themes[i].scheme, themes[i].background)
		}
		accent := strings.TrimSpace(between(part, "--accent:", ";"))
		if got := contrast(accent, themes[i].background); got < leastContrast {
			t.Errorf("the page's own %s accent %s has contrast %.2f", themes[i].scheme, accent, got)
		}
		for _, text := range []string{"--text:", "--quiet:", "--good:", "--bad:"} {
			if color := strings.TrimSpace(between(part, text, ";")); contrast(color, themes[i].background) < leastContrast {
				t.Errorf("the %s %s %s contrasts too little", themes[i].scheme, text, color)
			}
		}
	}
}

func between(text, begin, end string) string {
	_, text, _ = strings.Cut(text, begin)
	text, _, _ = strings.Cut(text, end)
	return text
}
