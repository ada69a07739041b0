package money

import (
	"math"
	"testing"

	"golang.org/x/text/language"
)

const refused = -1

// What a person types is the amount that they mean, to the cent, or it is refused.
func TestParse(t *testing.T) {
	english, german := NewFormatter(language.English), NewFormatter(language.German)
	for _, test := range []struct {
		text, code string
		en, de     int64
	}{
		{"12.50", "EUR", 1250, 1250},
		{"12,50", "EUR", 1250, 1250},
		{"12,5", "EUR", 1250, 1250},
		{" 12 ", "EUR", 1200, 1200},
		{"0,01", "EUR", 1, 1},
		{"0", "EUR", 0, 0},
		{"007", "EUR", 700, 700},
		{"92233720368547758.07", "EUR", math.MaxInt64, math.MaxInt64},
		{"1234,50", "EUR", 123450, 123450},
		{"1.234,50", "EUR", 123450, 123450},
		{"1,234.50", "EUR", 123450, 123450},
		{"1\u00a0234,50", "EUR", 123450, 123450},
		{"1'234.50", "EUR", 123450, 123450},
		{"1.234.567", "EUR", 123456700, 123456700},
		{"12.345.678,90", "EUR", 1234567890, 1234567890},
		{"1250", "JPY", 1250, 1250},
		{"1,250", "JPY", refused, refused},
		{"1.250.000", "JPY", 1250000, 1250000},
		// A thousand to one person, and decimals to another.
		{"1.234", "EUR", refused, refused},
		{"1,234", "EUR", refused, refused},
		{"1.234", "KWD", 1234, refused},
		{"1,234", "KWD", refused, 1234},
		{"1.234,567", "KWD", 1234567, 1234567},
		{"1,234.567", "KWD", 1234567, 1234567},
		{"1 234,567", "KWD", refused, 1234567},
		// Not amounts.
		{"", "EUR", refused, refused},
		{",", "EUR", refused, refused},
		{",5", "EUR", refused, refused},
		{"5,", "EUR", refused, refused},
		{"12,345.6,7", "EUR", refused, refused},
		{"1234.567,00", "EUR", refused, refused},
		{"1.23,50", "EUR", refused, refused},
		{"1.234 567,00", "EUR", refused, refused},
		{"12,505", "EUR", refused, refused},
		{"12,5", "JPY", refused, refused},
		{"-1", "EUR", refused, refused},
		{"+1", "EUR", refused, refused},
		{"1e2", "EUR", refused, refused},
		{"€1", "EUR", refused, refused},
		{"12 50", "EUR", refused, refused},
		{"١", "EUR", refused, refused},
		{"92233720368547758,08", "EUR", refused, refused},
	} {
		for name, in := range map[string]struct {
			formatter Formatter
			want      int64
		}{"en": {english, test.en}, "de": {german, test.de}} {
			got, ok := in.formatter.Parse(test.text, test.code)
			if !ok {
				got = refused
			}
			if got != in.want {
				t.Errorf("%s: %q %s is %d, want %d", name, test.text, test.code, got, in.want)
			}
		}
	}
}

// What a form shows, it reads again.
func TestParse_WhatIsShown(t *testing.T) {
	for lang, want := range map[string]string{"en": "1234.50", "de": "1234,50", "fr": "1234,50", "ar": "1234.50", "fa": "1234.50"} {
		in := NewFormatter(language.MustParse(lang))
		if got := in.Plain(123450, "EUR"); got != want {
			t.Errorf("%s: %q, want %q", lang, got, want)
		}
		for _, code := range []string{"EUR", "JPY", "KWD"} {
			for _, minor := range []int64{0, 1, 99, 1000, 1234, 100_000, 123_456_789} {
				if got, ok := in.Parse(in.Plain(minor, code), code); !ok || got != minor {
					t.Errorf("%s: %d %s is read as %d, %v", lang, minor, code, got, ok)
				}
			}
		}
	}
}
