package payer

import (
	"math"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"
)

const noBreakSpace = "\u00a0"

// amounts writes amounts in one language. golang.org/x/text has the digits, separators and symbols of each; where the symbol goes is
// here, because its own formatter puts it first everywhere.
type amounts struct {
	printer *message.Printer
	pattern amountPattern
}

// amountPattern is what CLDR says about amounts in a language.
type amountPattern struct {
	before string // the symbol comes first, followed by this; else last, behind a space that does not break
	first  bool
	// ungrouped: a number of four digits has no separator.
	ungrouped bool
	// mark makes the direction right to left, whatever stands around the amount.
	mark string
}

// amountPatterns has the languages whose amounts are not as in German: 1.250,00 €.
var amountPatterns = map[string]amountPattern{
	"en": {first: true},
	"ja": {first: true},
	"zh": {first: true},
	"nl": {first: true, before: noBreakSpace},
	"pt": {first: true, before: noBreakSpace},
	"es": {ungrouped: true},
	"it": {ungrouped: true},
	"pl": {ungrouped: true},
	"ar": {mark: "\u200f"},
}

func amountsOf(tag language.Tag) amounts {
	base, _ := tag.Base()
	if base.String() == "ar" {
		tag = language.MustParse("ar-u-nu-latn") // as in CLDR since 42, and as on the till
	}
	return amounts{message.NewPrinter(tag), amountPatterns[base.String()]}
}

// money writes an amount in the currency's minor unit.
func (a amounts) money(minor int64, code string) string {
	digits := minorDigits(code)
	value := float64(minor) / math.Pow10(digits)
	options := []number.Option{number.Scale(digits)}
	const fiveDigits = 10_000
	if a.pattern.ungrouped && value < fiveDigits {
		options = append(options, number.NoSeparator())
	}
	amount := a.printer.Sprint(number.Decimal(value, options...))
	symbol := code // of a currency that is younger than the tables of golang.org/x/text
	if unit, err := currency.ParseISO(code); err == nil {
		symbol = a.printer.Sprint(currency.Symbol(unit))
	}
	if !a.pattern.first {
		return a.pattern.mark + amount + noBreakSpace + symbol
	}
	space := a.pattern.before
	if last, _ := utf8.DecodeLastRuneInString(symbol); !unicode.IsSymbol(last) {
		space = noBreakSpace // KWD 1.250, but €1.25
	}
	return symbol + space + amount
}

// minorDigits are the decimals of a currency in ISO 4217. CLDR has others for some: it writes no decimals where nobody uses the coins,
// so with its digits 125000 IDR, which is 1,250.00, would be read as a hundred times as much.
func minorDigits(code string) int {
	if digits, other := otherMinorDigits[code]; other {
		return digits
	}
	return 2
}

// otherMinorDigits has the currencies whose decimals are not two.
var otherMinorDigits = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "VND": 0, "VUV": 0,
	"XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
}
