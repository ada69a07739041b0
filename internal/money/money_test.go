package money

import (
	"strconv"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/language"
)

// The strings are those of CLDR 48 (Intl.NumberFormat), where each space is one that does not break; it separates thousands in French with a
// narrower one.
func TestFormat_Languages(t *testing.T) {
	for lang, want := range map[string][7]string{
		// 123450 EUR, 123450 USD, 1250 JPY, 1250 KWD, 1250 CHF, 9999999 PLN, 150 VES
		"en": {"€1,234.50", "$1,234.50", "¥1,250", "KWD 1.250", "CHF 12.50", "PLN 99,999.99", "VES 1.50"},
		"de": {"1.234,50 €", "1.234,50 $", "1.250 ¥", "1,250 KWD", "12,50 CHF", "99.999,99 PLN", "1,50 VES"},
		"fr": {"1 234,50 €", "1 234,50 $US", "1 250 JPY", "1,250 KWD", "12,50 CHF", "99 999,99 PLN", "1,50 VES"},
		"es": {"1234,50 €", "1234,50 US$", "1250 JPY", "1,250 KWD", "12,50 CHF", "99.999,99 PLN", "1,50 VES"},
		"it": {"1234,50 €", "1234,50 USD", "1250 JPY", "1,250 KWD", "12,50 CHF", "99.999,99 PLN", "1,50 VES"},
		"nl": {"€ 1.234,50", "US$ 1.234,50", "JP¥ 1.250", "KWD 1,250", "CHF 12,50", "PLN 99.999,99", "VES 1,50"},
		"pl": {"1234,50 €", "1234,50 USD", "1250 JPY", "1,250 KWD", "12,50 CHF", "99 999,99 zł", "1,50 VES"},
		"pt": {"€ 1.234,50", "US$ 1.234,50", "JP¥ 1.250", "KWD 1,250", "CHF 12,50", "PLN 99.999,99", "VES 1,50"},
		"ja": {"€1,234.50", "$1,234.50", "￥1,250", "KWD 1.250", "CHF 12.50", "PLN 99,999.99", "VES 1.50"},
		"zh": {"€1,234.50", "US$1,234.50", "JP¥1,250", "KWD 1.250", "CHF 12.50", "PLN 99,999.99", "VES 1.50"},
		"ar": {"\u200f1,234.50 €", "\u200f1,234.50 US$", "\u200f1,250 JP¥", "\u200f1.250 د.ك.\u200f", "\u200f12.50 CHF", "\u200f99,999.99 PLN", "\u200f1.50 VES"},
	} {
		in := NewFormatter(language.MustParse(lang))
		for i, amount := range []struct {
			minor int64
			code  string
		}{{123450, "EUR"}, {123450, "USD"}, {1250, "JPY"}, {1250, "KWD"}, {1250, "CHF"}, {9999999, "PLN"}, {150, "VES"}} {
			got := in.Format(amount.minor, amount.code)
			if expected := strings.ReplaceAll(want[i], " ", noBreakSpace); got != expected {
				t.Errorf("%s: %d %s is %q, want %q", lang, amount.minor, amount.code, got, expected)
			}
		}
	}
}

// An amount that is shown with too few or too many decimals is a wrong amount.
func TestFormat_EachDigit(t *testing.T) {
	for _, code := range []string{"EUR", "JPY", "KWD", "IDR", "HUF", "XOF", "IQD", "VES", "MGA"} {
		for _, lang := range []string{"en", "fr", "ar", "pl"} {
			in := NewFormatter(language.MustParse(lang))
			for _, minor := range []int64{1, 99, 100, 999, 1000, 10_001, 999_999, 1_234_567, 9_999_999, 10_000_000, 999_999_999_999_999, 1_000_000_000_000_000} {
				digits := strings.Map(func(r rune) rune {
					if unicode.IsDigit(r) {
						return r
					}
					return -1
				}, in.Format(minor, code))
				if got, err := strconv.ParseInt(digits, 10, 64); err != nil || got != minor {
					t.Errorf("%s: %d %s is %q", lang, minor, code, in.Format(minor, code))
				}
			}
		}
	}
}
