package session_test

import (
	"math"
	"testing"

	"golang.org/x/text/currency"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Where CLDR has decimals in everyday use, they are those of ISO 4217.
func TestMinorDigits(t *testing.T) {
	for code, want := range map[string]int{
		"EUR": 2, "USD": 2, "JPY": 0, "KRW": 0, "CLP": 0, "ISK": 0, "XOF": 0, "KWD": 3, "BHD": 3, "TND": 3, "IQD": 3,
		"IDR": 2, "HUF": 2, "COP": 2, "LBP": 2, "MMK": 2, "RSD": 2, // CLDR: 0 for most of these
	} {
		if got := session.MinorDigits(code); got != want {
			t.Errorf("%s has %d decimals, want %d", code, got, want)
		}
	}
	for currencies := currency.Query(); currencies.Next(); {
		unit := currencies.Unit()
		if scale, _ := currency.Standard.Rounding(unit); scale > session.MinorDigits(unit.String()) {
			t.Errorf("%s has %d decimals here, %d in everyday use", unit, session.MinorDigits(unit.String()), scale)
		}
	}
}

func TestFormatAmount(t *testing.T) {
	for _, test := range []struct {
		minor    int64
		currency string
		want     string
	}{
		{0, "EUR", "0.00"},
		{1, "EUR", "0.01"},
		{99, "EUR", "0.99"},
		{1250, "EUR", "12.50"},
		{-5, "EUR", "-0.05"},
		{1250, "JPY", "1250"},
		{0, "JPY", "0"},
		{1, "KWD", "0.001"},
		{1250, "KWD", "1.250"},
		{1250, "XYZ", "12.50"},
		// A float64 would not have these.
		{9007199254740993, "EUR", "90071992547409.93"},
		{math.MaxInt64, "EUR", "92233720368547758.07"},
		{math.MinInt64, "EUR", "-92233720368547758.08"},
	} {
		if got := session.FormatAmount(test.minor, test.currency); got != test.want {
			t.Errorf("%d %s is %s, want %s", test.minor, test.currency, got, test.want)
		}
	}
}
